// Package fsck refuses faulty git objects that attack or break a client's checkout. Plain git
// refuses none by default, and old repositories contain thousands of harmless faults. An operator
// may allow each fault by name, like receive.fsck.<name>=ignore.
package fsck

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// refused are the faults refused by default, by git's names ("FSCK MESSAGES" in git-fsck(1)).
var refused = []string{
	// Objects that git cannot read. Plain git refuses them too.
	"badObjectSha1", "badParentSha1", "badTree", "badTreeSha1", "badType", "emptyName", "missingObject", "missingTag",
	"missingTagEntry", "missingTree", "missingType", "missingTypeEntry",
	// Names that leave the work tree, write into .git, or occur twice in a tree, so that a link and
	// a folder can have the same name. An unsorted tree may hide a second name.
	"duplicateEntries", "fullPathname", "hasDot", "hasDotdot", "hasDotgit", "nullSha1", "treeNotSorted",
	// A .gitmodules file that attacks git clients before 2.20 and 2.30.
	"gitmodulesBlob", "gitmodulesLarge", "gitmodulesMissing", "gitmodulesName", "gitmodulesPath",
	"gitmodulesSymlink", "gitmodulesUpdate", "gitmodulesUrl",
}

// accepted are the faults of git 2.39 that are never refused and that index-pack can ignore.
// index-pack cannot ignore nulInHeader and unterminatedHeader.
var accepted = []string{
	"badDate", "badDateOverflow", "badEmail", "badFilemode", "badName", "badTagName", "badTimezone", "extraHeaderEntry",
	"gitattributesBlob", "gitattributesLarge", "gitattributesLineLength", "gitattributesMissing", "gitattributesSymlink",
	"gitignoreSymlink", "gitmodulesParse", "mailmapSymlink", "missingAuthor", "missingCommitter",
	"missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "missingTaggerEntry",
	"multipleAuthors", "nulInCommit", "unknownType", "zeroPaddedDate", "zeroPaddedFilemode",
}

// maxText is the maximum size of a commit or tag, in bytes. Git unpacks each of them in memory for
// each clone, and a pack of a few MB can contain gigabytes.
const maxText = 4 << 20

// Rules is a set of refused faults. The zero value refuses none.
type Rules struct{ refused map[string]bool }

// New returns the default rules without the allowed faults. Names are case-insensitive, as in git.
func New(allow []string) (Rules, error) {
	r := Rules{refused: make(map[string]bool)}
	for _, name := range refused {
		r.refused[name] = true
	}
	known := make(map[string]string) // by lower-case name
	for _, name := range slices.Concat(refused, accepted, []string{"nulInHeader", "unterminatedHeader"}) {
		known[strings.ToLower(name)] = name
	}
	for _, name := range allow {
		exact, ok := known[strings.ToLower(name)]
		if !ok {
			return Rules{}, fmt.Errorf("%q is not a name of a fault in git fsck", name)
		}
		delete(r.refused, exact)
	}
	return r, nil
}

// Fault is the reason for refusing an object.
type Fault struct{ Object, Reason string }

func (f *Fault) Error() string { return "object " + f.Object + ": " + f.Reason }

// Index indexes a pack, which begins at an offset of a file, into a folder that is relative to the
// repository. run runs git in the repository. Index returns a [Fault] if an object has a refused
// fault, or if a commit or tag is too large. hash is part of the name of the indexed pack.
func (r Rules) Index(pack *os.File, offset, maxBytes int64, folder string, run func(gitrun.Child) error) (hash string, err error) {
	var name bytes.Buffer // "pack", a tab and the hash
	index := func(options ...string) error {
		if _, err := pack.Seek(offset, io.SeekStart); err != nil {
			return fmt.Errorf("reading a pack: %w", err)
		}
		name.Reset()
		return run(gitrun.Child{Env: gitrun.Beside(folder), Stdin: pack, Stdout: &name, Args: append([]string{
			Command, "--stdin", "--fix-thin", "--threads=1", "--max-input-size=" + strconv.FormatInt(maxBytes, 10),
		}, options...)})
	}
	found, only := &report{rules: r}, gitrun.Only(folder)
	err = index(r.strict())
	var failed *gitrun.Error
	if errors.As(err, &failed) && (strings.Contains(failed.Stderr, "fsck error") || strings.Contains(failed.Stderr, "appears twice in the pack")) {
		if _, _ = io.WriteString(found, failed.Stderr+"\n"); found.fault != nil {
			return "", found.fault
		}
		// Git also refuses faults that it cannot ignore: the two faults above, faults of later
		// versions, and duplicate objects in a pack.
		if err = index(); err == nil {
			// Only the objects of the pack are checked. A .gitmodules file of the repository counts as missing. An object name as
			// argument keeps git from checking refs.
			err = run(gitrun.Child{Env: only, Stderr: found, Args: []string{"fsck", "--no-dangling", "--no-reflogs", "--progress", "0"}})
			if errors.As(err, &failed) && failed.Code() > 0 && failed.Code() < died { // git reports each fault
				err = nil
			}
		}
	}
	if err == nil {
		err = run(gitrun.Child{Env: only, Stdout: found, Args: []string{
			"cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectname) %(objectsize)",
		}})
	}
	if found.fault != nil {
		return "", found.fault
	}
	_, hash, _ = strings.Cut(strings.TrimSpace(name.String()), "\t")
	return hash, err
}

// Command is the git command that indexes a pack, which needs more memory than the others.
const Command = "index-pack"

// died is above the exit status of git fsck for faults. Fatal errors of git have a higher status.
const died = 64

func (r Rules) strict() string {
	arg := "--strict="
	for _, name := range slices.Concat(accepted, refused) {
		if !r.refused[name] {
			arg += name + "=ignore,"
		}
	}
	return strings.TrimSuffix(arg, ",")
}

// report parses git's output about objects and keeps the first refused fault.
type report struct {
	rules Rules
	line  []byte
	fault *Fault
}

const maxLine = 200

func (p *report) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		end := bytes.IndexAny(rest, "\r\n") // progress lines end with \r
		line := rest
		if end >= 0 {
			line = rest[:end]
		}
		p.line = append(p.line, line[:min(len(line), maxLine-len(p.line))]...)
		if end < 0 {
			break
		}
		p.read(string(p.line))
		p.line, rest = p.line[:0], rest[end+1:]
	}
	return len(b), nil
}

// read parses a line of git fsck ("error in tree <id>: hasDotgit: contains '.git'"), git index-pack
// ("error: object <id>: hasDotgit: ..."), or git cat-file ("commit <id> 123").
func (p *report) read(line string) {
	if p.fault != nil {
		return
	}
	object, rest, _ := strings.Cut(strings.TrimPrefix(line, "error: "), ": ")
	words := strings.Fields(object)
	name, _, ok := strings.Cut(rest, ": ")
	if ok && p.rules.refused[name] && len(words) > 0 {
		p.fault = &Fault{words[len(words)-1], name + " (git fsck); the operator of this server may allow it (-fsck-allow " + name + ")"}
	}
	if len(words) == 3 && (words[0] == "commit" || words[0] == "tag") {
		if n, err := strconv.ParseInt(words[2], 10, 64); err == nil && n > maxText {
			p.fault = &Fault{words[1], fmt.Sprintf("a %s of %d bytes; at most %d are accepted", words[0], n, maxText)}
		}
	}
}
