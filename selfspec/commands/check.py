"""`selfspec check`: is what is committed whole, current and linked?

selfspec check            # one line a fault; exit code 0 when there is none
"""

from pathlib import Path


def add(commands, say) -> None:
    """Add the command to the parser; `say` prints a line to standard error."""
    check = commands.add_parser(
        "check",
        help="look for faults in results, pages and links",
        description="Look for faults: results that cannot be read, rows without their "
        "origins or twice, traces of one machine (paths, host and user names), run "
        "pages with an error or a cell that was not run, generated files that are not "
        "what the results say, links that lead nowhere. One line a fault. Changes "
        "nothing. Exit code 0 when all is whole, else 1.",
    )
    check.add_argument(
        "--root", default="", help="the project's folder (default: the clone's)"
    )
    check.set_defaults(
        run=lambda arguments: _check(arguments, say),
        stopped="stopped; nothing was changed: the same command looks again",
    )


def _check(arguments, say) -> int:
    from tqdm import tqdm

    from selfspec.study import book_check, link_check, reference, results_check

    root = _root(arguments.root) if arguments.root else reference.find_root()
    site = root / "book" / "_build" / "html"
    looks = {
        "results": lambda: results_check.faults(root),
        "run pages": lambda: book_check.run_pages(root),
        "links": lambda: link_check.in_sources(root),
        "site": lambda: link_check.in_site(site) if site.is_dir() else [],
    }
    found: dict[str, list[str]] = {}
    with tqdm(total=len(looks) + 1, unit="look", leave=False, disable=None) as bar:
        for name, look in looks.items():
            bar.set_description(f"checking {name}")
            found[name] = look()
            bar.update()
        bar.set_description("checking generated files")
        # they are made of results and run pages, which must be right first
        made_of = not (found["results"] or found["run pages"])
        found["generated files"] = book_check.stale(root) if made_of else []
    lines = [line for part in found.values() for line in part]
    for line in lines:
        print(line)
    if not made_of:
        say("generated files come next: mend results and run pages first")
    if lines:
        say(f"{len(lines)} fault{'s' if len(lines) > 1 else ''} in {root.name}")
        return 1
    print(
        f"whole: {results_check.count(root)} results files, {book_check.count(root)} "
        "run pages, generated files and links"
        + (", and the built site" if site.is_dir() else "")
    )
    return 0


def _root(name: str) -> Path:
    """The folder that was named.

    Raises:
        StudyError: it is none of this project's.
    """
    from selfspec.study import reference
    from selfspec.study.errors import StudyError

    root = Path(name).expanduser().resolve()
    if not (root / reference.FOLDER).is_dir():
        raise StudyError(
            f"{root.name} holds no {reference.FOLDER}. Way out: name a clone's folder"
        )
    return root
