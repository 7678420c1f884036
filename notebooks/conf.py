"""The documentation site: `sphinx-build -W -n -j auto notebooks FOLDER`."""

import shutil
import sys
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parent)
)  # for the extension and the drawings beside this file

import dmljax

HERE = Path(__file__).parent

project, author, copyright = "dmljax", "the dmljax developers", "the dmljax developers"
version = release = dmljax.__version__

# myst_nb: pages in Markdown, and notebooks as they are kept, outputs included.
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "matplotlib.sphinxext.plot_directive",
    "sphinx_copybutton",
    "operator_pages",
]
# Types of other libraries are no links, for their inventories would have to be fetched; nor are private types.
nitpick_ignore_regex = [
    (
        "py:class",
        r"(jax|jaxlib|numpy|collections|os|pathlib)\..*|ArrayLike|DTypeLike|NDArray",
    ),
    (
        "py:class",
        r"dmljax\.((descriptors|dxdispatch|estimation|foundation)\..*"
        r"|onnx\.(graph\.graph\.OnnxGraph|language\.(generation\.Generation(Program|Run)|settings\.Settings"
        r"|tokens\.PromptTokenizer)|diffusion\.(model\.DiffusionSettings|schedulers\.Scheduler)|rewrites\.loaded_graph\.LoadedGraph))",
    ),
]
nb_execution_mode = "off"  # the tests run the notebooks, and compare their output with the output in the files
myst_heading_anchors = 3
exclude_patterns = ["models", "operators/shared", "static"]

default_role = "code"  # docstrings have names in single backquotes
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100  # a longer one has a line for each argument
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 120)]
plot_working_directory = str(HERE)

html_theme = "furo"
html_favicon = "favicon.svg"
html_title = f"dmljax {release}"
html_static_path = ["static"]
html_js_files = ["sidebar.js", "filter.js"]
html_css_files = ["site.css"]
html_copy_source = False
copybutton_prompt_text = (
    r">>> |\.\.\. |\$ "  # the button copies code without prompts and output
)
copybutton_prompt_is_regexp = True
html_show_sphinx = False
html_domain_indices = False  # of modules, which are on one page


def setup(app):
    """Offers each notebook for download, and keeps the files that MyST-NB extracts inside the output folder."""
    inside = Path(app.outdir) / ".notebooks"

    def move(app):
        app.env.mystnb_config = app.env.mystnb_config.copy(output_folder=str(inside))

    def offer_download(app, page, template, context, doctree):
        notebook = HERE / f"{page}.ipynb"
        if notebook.exists():
            shutil.copy(notebook, app.outdir)
            below_title = "</h1>" + DOWNLOAD.format(name=notebook.name)
            context["body"] = context["body"].replace("</h1>", below_title, 1)

    app.connect("builder-inited", move, priority=900)  # after MyST-NB's own
    app.connect("html-page-context", offer_download)


DOWNLOAD = """\
<p><a href="{name}" download>Download this notebook</a> and run it, without a clone of the repository, where dmljax is
installed with its extra <code>notebooks</code>: <code>jupyter lab {name}</code></p>
"""
