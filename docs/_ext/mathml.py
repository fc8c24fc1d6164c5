"""Formulas as MathML, converted while the pages are built.

Browsers draw MathML themselves, so pages need no script, no fonts from elsewhere and no LaTeX. The
converter is the one that docutils brings. A formula that it cannot read is a warning, and so an error of
the build, instead of red letters in front of the reader.
"""

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

log = logging.getLogger(__name__)


def converted(writer, node, *, as_block):
    """The formula of a node as markup; its source in plain letters where it cannot be read."""
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        log.warning("formula cannot be shown: %s", error, location=node)
        return f"<code>{writer.encode(node.astext())}</code>"


def visit_inline(writer, node):
    writer.body.append(converted(writer, node, as_block=False))
    raise nodes.SkipNode


def visit_block(writer, node):
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(writer, node)
        writer.body.append(f'<span class="eqno">({number})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append(converted(writer, node, as_block=True))
    writer.body.append("</div>")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("config-inited", lambda _, config: setattr(config, "html_math_renderer", "mathml"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
