package pages

import (
	"bytes"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/graspsync/graspsync"
)

// markdown renders no HTML of strangers and loads no images. See strict.
var markdown = goldmark.New(
	goldmark.WithParser(parser.NewParser(
		parser.WithBlockParsers(parser.DefaultBlockParsers()...),
		parser.WithInlineParsers(inlineParsers()...),
		parser.WithParagraphTransformers(util.Prioritized(references{}, 100)),
		parser.WithASTTransformers(util.Prioritized(strict{}, 1000)),
	)),
	goldmark.WithExtensions(tables{}, extension.Strikethrough, extension.Linkify),
)

// Limits of Markdown. Without them, the parser needs more than a minute for some texts.
const (
	maxMarkdown   = 32 << 10 // bytes of a text that is formatted
	maxNested     = 60       // characters before the text of a line, such as those of nested quotations
	maxReferences = 500      // lines of a paragraph with link references
	maxLinkWork   = 5 << 20  // bytes of the blocks of all brackets; more brackets are text
)

// nested matches a line with too many characters before its text.
var nested = regexp.MustCompile(fmt.Sprintf(`(?m)^[ \t>+*0-9.)-]{%d}`, maxNested))

func inlineParsers() []util.PrioritizedValue {
	all := parser.DefaultInlineParsers()
	for i, p := range all {
		if p.Value == parser.NewLinkParser() {
			link := parser.NewLinkParser()
			all[i].Value = links{link, link.(parser.CloseBlocker)} //nolint:forcetypeassert // as documented
		}
	}
	return all
}

// links parses links until maxLinkWork is reached, because the parser reads the rest of the block for
// each bracket.
type links struct {
	parser.InlineParser
	parser.CloseBlocker
}

var linkWork = parser.NewContextKey()

// Parse implements [parser.InlineParser].
func (l links) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	work, _ := pc.Get(linkWork).(int)
	if lines := parent.Lines(); lines.Len() > 0 {
		work += lines.At(lines.Len()-1).Stop - lines.At(0).Start
	}
	if pc.Set(linkWork, work); work > maxLinkWork {
		return nil
	}
	return l.InlineParser.Parse(parent, block, pc)
}

// references finds link references in paragraphs of at most maxReferences lines.
type references struct{}

// Transform implements [parser.ParagraphTransformer].
func (references) Transform(node *ast.Paragraph, reader text.Reader, pc parser.Context) {
	if node.Lines().Len() <= maxReferences {
		parser.LinkReferenceParagraphTransformer.Transform(node, reader, pc)
	}
}

// readme renders a README as HTML. Only Markdown is formatted.
func readme(name string, content []byte) template.HTML {
	if len(content) == 0 {
		return ""
	}
	source := printable(string(content))
	lower := strings.ToLower(name)
	formatted := strings.HasSuffix(lower, ".md") || strings.HasSuffix(lower, ".markdown")
	if formatted && len(source) <= maxMarkdown && !nested.MatchString(source) {
		var out bytes.Buffer
		if err := markdown.Convert([]byte(source), &out); err == nil {
			return template.HTML(printable(out.String())) //nolint:gosec // made by strict; entities can name any character
		}
	}
	return template.HTML("<pre>" + template.HTMLEscapeString(source) + "</pre>") //nolint:gosec // escaped
}

// printable drops all characters but printable ones, line feeds and tabs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || graspsync.IsPrintable(r) && r != utf8.RuneError {
			return r
		}
		return -1
	}, s)
}

// strict changes a document so that it contains no HTML, no images, and only absolute links to other
// sites. Headings are one level lower, because the page has the first.
type strict struct{}

// Transform implements [parser.ASTTransformer].
func (strict) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	var nodes []ast.Node // changed after the walk
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			nodes = append(nodes, n)
		}
		return ast.WalkContinue, nil
	})
	for _, n := range nodes {
		switch n := n.(type) {
		case *ast.Heading:
			n.Level = min(n.Level+1, 6)
		case *ast.HTMLBlock, *ast.RawHTML:
			n.Parent().RemoveChild(n.Parent(), n)
		case *ast.Image:
			unwrap(n)
		case *ast.Link:
			if !isForeign(n.Destination) {
				unwrap(n)
			}
			n.SetAttributeString("rel", []byte("nofollow noopener"))
		case *ast.AutoLink:
			if n.AutoLinkType == ast.AutoLinkURL && !isForeign(n.URL(reader.Source())) {
				n.Parent().ReplaceChild(n.Parent(), n, ast.NewString(n.Label(reader.Source())))
			}
			n.SetAttributeString("rel", []byte("nofollow noopener"))
		}
	}
}

// unwrap replaces a node by its children.
func unwrap(n ast.Node) {
	parent := n.Parent()
	for c := n.FirstChild(); c != nil; c = n.FirstChild() {
		parent.InsertBefore(parent, n, c)
	}
	parent.RemoveChild(parent, n)
}

// isForeign reports whether a link leads to a web page or mail address of another site.
func isForeign(link []byte) bool {
	u, err := url.Parse(string(link))
	return err == nil && u.User == nil && ((u.Scheme == "https" || u.Scheme == "http") && u.Host != "" || u.Scheme == "mailto")
}

// maxCells is the maximum number of cells of all tables. Later tables are shown as text. A row has
// as many cells as the table has columns, so short lines can make a page of gigabytes.
const maxCells = 20_000

var keyCells = parser.NewContextKey()

// tables is the table extension of goldmark with a limit for cells.
type tables struct{}

// Extend implements [goldmark.Extender].
func (tables) Extend(m goldmark.Markdown) {
	m.Parser().AddOptions(
		parser.WithParagraphTransformers(util.Prioritized(cells{extension.NewTableParagraphTransformer()}, 200)),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)))
	m.Renderer().AddOptions(renderer.WithNodeRenderers(util.Prioritized(extension.NewTableHTMLRenderer(), 500)))
}

// cells counts the cells of a table before goldmark makes them.
type cells struct{ parser.ParagraphTransformer }

// Transform implements [parser.ParagraphTransformer].
func (c cells) Transform(node *ast.Paragraph, reader text.Reader, pc parser.Context) {
	columns, lines := 0, node.Lines()
	for i := range lines.Len() {
		at := lines.At(i)
		columns = max(columns, bytes.Count(at.Value(reader.Source()), []byte("|"))+1)
	}
	made, _ := pc.Get(keyCells).(int)
	made += columns * lines.Len()
	if pc.Set(keyCells, made); columns > 1 && made <= maxCells {
		c.ParagraphTransformer.Transform(node, reader, pc)
	}
}
