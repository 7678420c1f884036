"""`python -m dmljax.examples` runs the pages' examples and compares the outputs."""

import sys

from dmljax.examples import EXAMPLES, shown_example


def main() -> int:
    """Prints the pages' examples, with dmljax's outputs beside the expected outputs; returns 1 if any bit differs."""
    equal = 0
    for example in EXAMPLES:
        computed = example.computed()
        equal += example.expects(computed)
        print("\n".join(shown_example(example, computed)), end="\n\n")
    print(f"{equal} of {len(EXAMPLES)} examples equal the pages' expected values, bit for bit")
    return 0 if equal == len(EXAMPLES) else 1


if __name__ == "__main__":
    sys.exit(main())
