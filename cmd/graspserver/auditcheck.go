package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/rules"
)

// maxForgotten is the maximum number of logged commands.
const maxForgotten = 20

// remember logs commands of the audit log that were cut off, and commands that are not in force
// although nobody revoked them: the rules were lost, or a backup is older. Blocked events would
// otherwise come back unnoticed.
func (o *operator) remember(configured []graspsync.RelayURL) error {
	entries, err := o.audit.Recent(math.MaxInt)
	if err != nil {
		return err
	}
	cut := cutOff(entries)
	for _, e := range cut[:min(len(cut), maxForgotten)] {
		o.log.Error("command was cut off, repeat it", "command", spelled(e), "by", e.By, "at", e.At)
	}
	lost := forgotten(entries, o.book, configured)
	if len(lost) == 0 {
		return nil
	}
	o.log.Error("rules were lost: repeat these commands of audit.log, or revoke them with unset",
		"commands", len(lost))
	for _, e := range lost[:min(len(lost), maxForgotten)] {
		o.log.Error("command not in force", "command", spelled(e), "by", e.By, "at", e.At)
	}
	return nil
}

// cutOff returns the commands that have begun and have no outcome, unless a later command about the same
// subject has ended.
func cutOff(entries []admin.Entry) (cut []admin.Entry) {
	begun := make(map[string]int)
	for i, e := range entries {
		switch about := subject(e); {
		case about == "":
		case e.Outcome == admin.Begun:
			begun[about] = i
		default:
			delete(begun, about)
		}
	}
	for _, i := range slices.Sorted(maps.Values(begun)) {
		cut = append(cut, entries[i])
	}
	return cut
}

// spelled returns a command in the form of a command line.
func spelled(e admin.Entry) string {
	words := []string{e.Command}
	for _, arg := range e.Args {
		if strings.ContainsAny(arg, " \t\"'") || arg == "" {
			arg = fmt.Sprintf("%q", arg)
		}
		words = append(words, arg)
	}
	return graspsync.Printable(strings.Join(words, " "))
}

// forgotten returns the last command about each subject, if it should be in force and is not.
func forgotten(entries []admin.Entry, book *rules.RuleSet, configured []graspsync.RelayURL) (lost []admin.Entry) {
	last := make(map[string]int)
	for i, e := range entries {
		if about := about(e); about != "" {
			last[about] = i
		}
	}
	for _, i := range last {
		if !holds(entries[i], book, configured) {
			lost = append(lost, entries[i])
		}
	}
	slices.SortStableFunc(lost, func(a, b admin.Entry) int { return a.At.Compare(b.At) })
	return lost
}

// about returns the subject of a decision, or "". A failed command may have been applied in part,
// so only a failed unset counts.
func about(e admin.Entry) string {
	if e.Command == "purge" || e.Outcome == admin.Begun || e.Error != "" && e.Command != "unset" {
		return ""
	}
	return subject(e)
}

// subject returns the subject of a command that changes something permanently, or "".
func subject(e admin.Entry) string {
	if len(e.Args) < 2 {
		return ""
	}
	switch e.Command {
	case "block", "allow", "remove", "unset", "purge":
		return "rule " + e.Args[0] + " " + e.Args[1]
	case "bootstrap":
		return "bootstrap " + e.Args[1]
	case "describe":
		return "describe " + e.Args[0]
	}
	return ""
}

// holds reports whether the decision of a command is in force.
func holds(e admin.Entry, book *rules.RuleSet, configured []graspsync.RelayURL) bool {
	switch e.Command {
	case "block", "allow", "remove":
		s, err := rules.ParseSubject(e.Args[0], e.Args[1])
		if err != nil {
			return true // invalid today
		}
		r, is := book.Rule(s)
		return is && (r.Action == rules.Allow) == (e.Command == "allow")
	case "bootstrap":
		u, err := graspsync.ParseRelayURL(e.Args[1])
		return err != nil || slices.Contains(book.Bootstrap(configured), u) == (e.Args[0] == "add")
	case "describe":
		a := book.About()
		of := map[string]*string{"name": a.Name, "description": a.Description, "icon": a.Icon}
		return of[e.Args[0]] != nil
	}
	return true
}
