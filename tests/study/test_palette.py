"""One colour and one mark a method, legible on white, in every figure."""

import re

from selfspec.study import layerskip_figures, methods, palette


def luminance(colour: str) -> float:
    """Of WCAG 2: 0 is black, 1 is white."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast_on_white(colour: str) -> float:
    return 1.05 / (luminance(colour) + 0.05)


def test_no_two_methods_look_alike():
    looks = list(palette.METHODS.values())
    assert len({look.colour for look in looks}) == len(looks)
    assert len({look.marker for look in looks}) == len(looks)
    assert set(palette.METHODS) == set(methods.COLUMNS)


def test_every_colour_stands_out_on_white():
    colours = [look.colour for look in palette.METHODS.values()]
    colours += [*palette.PARTS.values(), *palette.SERIES, palette.REFERENCE]
    colours += [*palette.shades("#d55e00", 4), *layerskip_figures.COLOURS.values()]
    for colour in colours:
        assert re.fullmatch("#[0-9a-f]{6}", colour)
        assert contrast_on_white(colour) >= 2.8, colour


def test_what_was_taught_looks_the_same_wherever_it_is():
    taught = palette.look("exit, taught").colour
    assert layerskip_figures.COLOURS["ld-ee"] == taught


def test_shades_begin_with_the_colour_and_darken():
    found = palette.shades("#0072b2", 3)
    assert found[0] == "#0072b2" and len(set(found)) == 3
    assert sorted(found, key=luminance, reverse=True) == found
    assert palette.shades("#0072b2", 1) == ["#0072b2"]


def test_a_kind_that_is_not_known_is_drawn_in_black():
    assert palette.look("telepathy") == palette.UNKNOWN
    assert methods.column("telepathy") == methods.OTHER
