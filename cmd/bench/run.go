package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// run is the environment of a row and its results.
type run struct {
	ctx   context.Context
	quick bool
	cache string // folder of data sets
	dir   string // temporary folder of this row
	count int    // number of repetitions of compared works

	figures []figure
}

type figure struct {
	what   string
	value  float64
	unit   string // "" for a ratio
	target string // such as "at most 0.25"; "" for a figure that explains another
	met    bool
}

// figure adds a figure without target.
func (r *run) figure(what string, value float64, unit string) {
	r.figures = append(r.figures, figure{what: what, value: value, unit: unit})
}

// atMost adds a figure with the target most.
func (r *run) atMost(what string, value float64, unit string, most float64) {
	r.figures = append(r.figures, figure{
		what: what, value: value, unit: unit, target: fmt.Sprintf("at most %v", most), met: value <= most,
	})
}

// pick returns large, or small in a quick run.
func (r *run) pick(large, small int) int {
	if r.quick {
		return small
	}
	return large
}

func (r *run) measure(one row) (err error) {
	if r.dir, err = os.MkdirTemp("", "graspsync-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	return one.measure(r)
}

func (r *run) table(one row) string {
	var b strings.Builder
	if r.quick { // targets are for full runs
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

// number formats a value with three significant digits, or as an integer.
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
