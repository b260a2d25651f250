// Package fsck decides which faults of Git objects are refused when a push or a fetch brings them.
//
// Plain git refuses none, unless receive.fsckObjects or fetch.fsckObjects is set. Old repositories have
// thousands of objects with faults in names, dates and messages, which harm nobody. Only faults are
// refused that attack or break a checkout of a client. An operator may allow each of them by its name,
// as receive.fsck.<name>=ignore does.
package fsck

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// refused are the faults that are refused by default, by the names of git ("FSCK MESSAGES" in git-fsck(1)).
var refused = []string{
	// A tree that git cannot read hides its names.
	"badTree",
	// A name in a tree that leaves the work tree, writes into .git, or stands twice there, so that a
	// symbolic link and a folder have the same name. An unsorted tree may hide a second name.
	"duplicateEntries", "emptyName", "fullPathname", "hasDot", "hasDotdot", "hasDotgit", "nullSha1", "treeNotSorted",
	// A .gitmodules whose names, paths, URLs or commands attacked clients of git before 2.20 and 2.30.
	"gitmodulesBlob", "gitmodulesLarge", "gitmodulesMissing", "gitmodulesName", "gitmodulesPath",
	"gitmodulesSymlink", "gitmodulesUpdate", "gitmodulesUrl",
	// A .gitattributes that overflows memory of git before 2.39.1 (CVE-2022-23521).
	"gitattributesBlob", "gitattributesLarge", "gitattributesLineLength", "gitattributesMissing",
}

// accepted are the faults of git 2.39 that are never refused and that index-pack can be told to ignore.
// It cannot be told to ignore nulInHeader and unterminatedHeader.
var accepted = []string{
	"badDate", "badDateOverflow", "badEmail", "badFilemode", "badName", "badObjectSha1", "badParentSha1",
	"badTagName", "badTimezone", "badTreeSha1", "badType", "extraHeaderEntry", "gitattributesSymlink",
	"gitignoreSymlink", "gitmodulesParse", "mailmapSymlink", "missingAuthor", "missingCommitter",
	"missingEmail", "missingNameBeforeEmail", "missingObject", "missingSpaceBeforeDate",
	"missingSpaceBeforeEmail", "missingTag", "missingTagEntry", "missingTaggerEntry", "missingTree",
	"missingType", "missingTypeEntry", "multipleAuthors", "nulInCommit", "unknownType", "zeroPaddedDate",
	"zeroPaddedFilemode",
}

// Rules are the faults that are refused. The zero value refuses none; use [New].
type Rules struct{ refused map[string]bool }

// New returns the default rules without the faults that an operator allows. Names are compared without
// regard to case, as git does.
func New(allow []string) (Rules, error) {
	r := Rules{refused: make(map[string]bool)}
	for _, name := range refused {
		r.refused[name] = true
	}
	for _, name := range allow {
		same := func(known string) bool { return strings.EqualFold(known, name) }
		switch i := slices.IndexFunc(refused, same); {
		case i >= 0:
			delete(r.refused, refused[i])
		case !slices.ContainsFunc(accepted, same):
			return Rules{}, fmt.Errorf("%q is not a fault that git fsck names and that is refused: want %s", name, strings.Join(refused, ", "))
		}
	}
	return r, nil
}

// Strict returns the argument with which git index-pack refuses these faults and ignores others. It also
// refuses a few packs that are to be accepted: with a fault that it cannot ignore, or with an object
// twice. Index such a pack without the argument, and check it by [Rules.Command] and [Rules.Report].
func (r Rules) Strict() string {
	arg := "--strict="
	for _, name := range slices.Concat(accepted, refused) {
		if !r.refused[name] {
			arg += name + "=ignore,"
		}
	}
	return strings.TrimSuffix(arg, ",")
}

// Command returns the command that checks each object in GIT_OBJECT_DIRECTORY; its errors go to
// [Rules.Report]. It must not have the objects of the repository as an alternate, because it would check
// all of them. A .gitmodules that is stored in the repository only is therefore missing, and refused:
// that concerns packs only that [Rules.Strict] did not take. objectID is any id of the repository's hash,
// which keeps git from checking refs.
func (r Rules) Command(objectID string) []string {
	return []string{"fsck", "--no-dangling", "--no-reflogs", "--no-progress", objectID}
}

// Report reads what git fsck writes to its standard error.
type Report struct {
	rules Rules
	line  []byte
	fault *Fault
}

// Report returns an empty report.
func (r Rules) Report() *Report { return &Report{rules: r} }

// Fault is a fault of an object that is refused.
type Fault struct{ Name, Object string }

// Error names the fault, and the object.
func (f *Fault) Error() string { return fmt.Sprintf("object %s: %s (git fsck)", f.Object, f.Name) }

// Err returns the first refused fault, or nil.
func (p *Report) Err() error {
	if p.fault == nil {
		return nil
	}
	return p.fault
}

// maxLine is the maximum length of the part of a line that names the fault.
const maxLine = 200

// Write implements [io.Writer].
func (p *Report) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		p.line = append(p.line, line[:min(len(line), maxLine-len(p.line))]...)
		if rest = after; ended {
			p.read(string(p.line))
			p.line = p.line[:0]
		}
	}
	return len(b), nil
}

// read reads a line such as "error in tree <id>: hasDotgit: contains '.git'".
func (p *Report) read(line string) {
	severity, rest, _ := strings.Cut(line, " in ")
	object, rest, _ := strings.Cut(rest, ": ")
	name, _, ok := strings.Cut(rest, ": ")
	if ok && (severity == "error" || severity == "warning") && p.rules.refused[name] && p.fault == nil {
		_, id, _ := strings.Cut(object, " ")
		p.fault = &Fault{Name: name, Object: id}
	}
}

// Find returns the fault that git index-pack names in what it wrote to its standard error, or nil.
func (r Rules) Find(stderr string) error {
	for line := range strings.Lines(stderr) {
		object, rest, _ := strings.Cut(strings.TrimPrefix(line, "error: "), ": ")
		if name, _, ok := strings.Cut(rest, ": "); ok && r.refused[name] {
			_, id, _ := strings.Cut(object, " ")
			return &Fault{Name: name, Object: id}
		}
	}
	return nil
}
