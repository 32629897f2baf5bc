"""Arms that go on from one text do not know of one another."""

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from selfspec.study.long_text import LongText


def test_every_cache_goes_on_as_if_it_had_read_the_text_itself(tiny_loaded):
    model, ids = tiny_loaded.model, list(range(5, 25))
    own = make_prompt_cache(model)
    wanted = model(mx.array([ids + [3]]), cache=own)[:, -1]
    before = LongText(model, ids)
    for other in (5, 7):  # writes to one cache, which the next must not see
        model(mx.array([[other, other]]), cache=before.cache())
        cache = before.cache()
        assert [entry.offset for entry in cache] == [len(ids)] * len(cache)
        found = model(mx.array([[3]]), cache=cache)[:, -1]
        assert mx.allclose(found, wanted, rtol=1e-4, atol=1e-4)
