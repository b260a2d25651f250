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
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/graspsync/graspsync"
)

// markdown renders no HTML of strangers and loads no images. See strict.
var markdown = goldmark.New(
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(strict{}, 1000))),
	goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Linkify),
)

// Beyond these limits the parser needs more than a minute for some texts.
const (
	maxMarkdown = 32 << 10 // bytes
	maxNested   = 60       // characters before the text of a line, such as those of nested quotations
	maxLinkWork = 32 << 20 // the parser reads up to the whole block for each bracket in it
	maxCells    = 20_000   // a row has as many cells as the table has columns
)

var (
	nested = regexp.MustCompile(fmt.Sprintf(`(?m)^[ \t>+*0-9.)-]{%d}`, maxNested))
	// blockEnd matches an empty line and the begin of a list item. Other blocks may end earlier.
	blockEnd = regexp.MustCompile(`\n[ \t]*\n|\n {0,3}[-*+] [^ \t\n]`)
	// delimiters matches the line below the head of a table.
	delimiters = regexp.MustCompile(`(?m)^[ \t>|:-]+$`)
)

func isCostly(source string) bool {
	work, columns := 0, 0
	for _, block := range blockEnd.Split(source, -1) {
		work += len(block) * (strings.Count(block, "[") + strings.Count(block, "]"))
	}
	for _, line := range delimiters.FindAllString(source, -1) {
		columns = max(columns, strings.Count(line, "|")+1)
	}
	return len(source) > maxMarkdown || nested.MatchString(source) || work > maxLinkWork || columns*strings.Count(source, "\n") > maxCells
}

// readme renders a README as HTML. Only Markdown is formatted.
func readme(name string, content []byte) template.HTML {
	if len(content) == 0 {
		return ""
	}
	source := printable(string(content))
	lower := strings.ToLower(name)
	formatted := strings.HasSuffix(lower, ".md") || strings.HasSuffix(lower, ".markdown")
	if formatted && !isCostly(source) {
		var out bytes.Buffer
		if err := markdown.Convert([]byte(source), &out); err == nil {
			return template.HTML(printable(out.String())) //nolint:gosec // made by strict; entities can name any character
		}
	}
	return template.HTML("<pre>" + template.HTMLEscapeString(source) + "</pre>") //nolint:gosec // escaped
}

// printable keeps printable characters, line feeds and tabs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || graspsync.IsPrintable(r) && r != utf8.RuneError {
			return r
		}
		return -1
	}, s)
}

// strict removes HTML, images, and links that are not absolute links to other sites. Headings are one level
// lower, because the page has the first.
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
