package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// names are what a PromQL expression names: metrics, and the labels that it wants of them.
type names struct {
	metrics []string
	labels  []labelUse
}

// labelUse is a label of a metric, "" for one of the results of any of the expression's metrics. values are
// those that it is compared to.
type labelUse struct {
	metric, label string
	values        []string
}

// token is a piece of an expression.
type token struct{ kind, text string }

var pieces = regexp.MustCompile("(?s)^(?:" + strings.Join([]string{
	`(?P<space>\s+|#[^\n]*)`, `(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')`, `(?P<number>(?:[0-9]*\.[0-9]+|[0-9]+\.?)(?:[eE][+-]?[0-9]+)?(?:[a-z0-9]*))`,
	`(?P<variable>\$__rate_interval|\$__range|\$__interval)`, `(?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)`, `(?P<op>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){}\[\],@:])`,
}, "|") + ")")

func tokens(expr string) (out []token, err error) {
	for expr != "" {
		m := pieces.FindStringSubmatch(expr)
		if m == nil {
			return nil, fmt.Errorf("no PromQL from here on: %s", expr)
		}
		for i, kind := range pieces.SubexpNames() {
			if kind != "" && kind != "space" && m[i] != "" {
				out = append(out, token{kind, m[i]})
			}
		}
		expr = expr[len(m[0]):]
	}
	return out, nil
}

// What a word of PromQL is if it is no metric. A function that is not here is an error: nothing passes
// for want of being known.
var (
	functions = strings.Fields("sum min max avg count topk bottomk rate irate increase delta vector label_replace clamp_min abs round time")
	grouping  = strings.Fields("by without on ignoring group_left group_right")
	operators = strings.Fields("and or unless bool offset")
)

// namesIn returns what an expression names.
func namesIn(expr string) (n names, err error) {
	ts, err := tokens(expr)
	if err != nil {
		return n, err
	}
	at := func(i int) token {
		if i < len(ts) {
			return ts[i]
		}
		return token{}
	}
	for i := 0; i < len(ts); i++ {
		t := ts[i]
		switch {
		case t.text == "[": // a range
			for at(i).text != "]" {
				if i++; i >= len(ts) {
					return n, fmt.Errorf("a range without an end: %s", expr)
				}
			}
		case t.kind != "word":
			if t.text == "{" {
				return n, fmt.Errorf("a selector without a metric: %s", expr)
			}
		case slices.Contains(grouping, t.text):
			if at(i+1).text != "(" {
				if strings.HasPrefix(t.text, "group_") {
					continue
				}
				return n, fmt.Errorf("%s without labels: %s", t.text, expr)
			}
			for i += 2; at(i).text != ")"; i++ {
				switch word := at(i); { // at the end this is "", which is no label
				case word.kind == "word":
					n.labels = append(n.labels, labelUse{label: word.text})
				case word.text != ",":
					return n, fmt.Errorf("%q among labels: %s", word.text, expr)
				}
			}
		case slices.Contains(operators, t.text):
		case at(i+1).text == "(", at(i+1).text == "by", at(i+1).text == "without":
			if !slices.Contains(functions, t.text) {
				return n, fmt.Errorf("unknown function %s: %s", t.text, expr)
			}
		default:
			n.metrics = append(n.metrics, t.text)
			if at(i+1).text != "{" {
				continue
			}
			for i += 2; at(i).text != "}"; i++ {
				if at(i).text == "," {
					continue
				}
				if at(i).kind != "word" || at(i+1).kind != "op" || at(i+2).kind != "string" {
					return n, fmt.Errorf("no matcher: %s %s %s: %s", at(i).text, at(i+1).text, at(i+2).text, expr)
				}
				use := labelUse{metric: t.text, label: at(i).text}
				value := strings.Trim(at(i+2).text, `"'`)
				if !strings.HasPrefix(value, "$") { // a variable of the dashboard
					use.values = strings.Split(value, "|")
				}
				n.labels = append(n.labels, use)
				i += 2
			}
		}
	}
	return n, nil
}
