"""Write all pictures anew, and remove those that are none any more."""

from pathlib import Path

from scripts.pictures.stories import STORIES

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    names = {f"{story.name}.svg" for story in STORIES}
    for old in FOLDER.glob("*.svg"):
        if old.name not in names:
            old.unlink()
    for story in STORIES:
        (FOLDER / f"{story.name}.svg").write_text(story.svg(), "utf-8")
    print(f"{len(STORIES)} pictures in {FOLDER.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
