package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// run is what a row measures with, and where its figures go.
type run struct {
	ctx   context.Context
	quick bool
	cache string // folder of data sets
	dir   string // folder for this row only, which goes afterwards
	count int    // how often what is compared is measured

	profiles profiles

	figures []figure
}

// figure is one thing that was measured.
type figure struct {
	what   string
	value  float64
	unit   string // "" for a ratio
	target string // in words, as "at most 0.25"; "" for a figure that explains another
	met    bool
}

// figure takes a figure in that has no target.
func (r *run) figure(what string, value float64, unit string) {
	r.figures = append(r.figures, figure{what: what, value: value, unit: unit})
}

// atMost takes a figure in that is to be no larger than most.
func (r *run) atMost(what string, value float64, unit string, most float64) {
	r.figures = append(r.figures, figure{
		what: what, value: value, unit: unit, target: fmt.Sprintf("at most %v", most), met: value <= most,
	})
}

// pick returns large, or small for a quick run.
func (r *run) pick(large, small int) int {
	if r.quick {
		return small
	}
	return large
}

// measure measures a row.
func (r *run) measure(one row) (err error) {
	if r.dir, err = os.MkdirTemp("", "graspsync-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	return one.measure(r)
}

// table has the figures as a Markdown table.
func (r *run) table(one row) string {
	var b strings.Builder
	if r.quick { // targets are for all of it
		fmt.Fprintf(&b, "\nA small part of: %s (%s)\n\n| what | measured |\n|---|---|\n", one.work, one.name)
	} else {
		fmt.Fprintf(&b, "\n%s (%s)\n\n| what | measured | target | |\n|---|---|---|---|\n", one.work, one.name)
	}
	for _, f := range r.figures {
		fmt.Fprintf(&b, "| %s | %s |", f.what, strings.TrimSpace(number(f.value)+" "+f.unit))
		if !r.quick {
			fmt.Fprintf(&b, " %s | %s |", f.target, f.verdict())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (f figure) verdict() string {
	switch {
	case f.target == "":
		return ""
	case f.met:
		return "met"
	}
	return "not met"
}

// number writes three digits that count, or all before the point.
func number(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}
