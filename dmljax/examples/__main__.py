"""`python -m dmljax.examples` runs the pages' examples and compares the outputs."""

import sys

from dmljax.descriptors.base import OPERATORS
from dmljax.examples import example_lines, page_examples


def main() -> int:
    """Prints the pages' examples with actual and expected outputs side by side; returns 1 if any bit differs."""
    examples = [example for operator in OPERATORS.values() for example in page_examples(operator)]
    equal = 0
    for example in examples:
        computed = example.computed()
        equal += example.expects(computed)
        print("\n".join(example_lines(example, computed)), end="\n\n")
    print(f"{equal} of {len(examples)} examples equal the pages' expected values, bit for bit")
    return 0 if equal == len(examples) else 1


if __name__ == "__main__":
    sys.exit(main())
