// Package fsck decides which faults of Git objects are refused when a push or a fetch brings them.
//
// Plain git refuses none, unless receive.fsckObjects or fetch.fsckObjects is set. Old repositories have
// thousands of objects with faults in names, dates and messages, which harm nobody. Only faults are
// refused that attack or break a checkout of a client. An operator may allow each of them by its name,
// as receive.fsck.<name>=ignore does.
package fsck

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/graspsync/graspsync/internal/nearest"
)

// refused are the faults that are refused by default, by the names of git ("FSCK MESSAGES" in git-fsck(1)).
var refused = []string{
	// An object that git cannot read. Plain git refuses it as well.
	"badObjectSha1", "badParentSha1", "badTree", "badTreeSha1", "badType", "emptyName", "missingObject", "missingTag",
	"missingTagEntry", "missingTree", "missingType", "missingTypeEntry",
	// A name in a tree that leaves the work tree, writes into .git, or stands twice there, so that a
	// symbolic link and a folder have the same name. An unsorted tree may hide a second name.
	"duplicateEntries", "fullPathname", "hasDot", "hasDotdot", "hasDotgit", "nullSha1", "treeNotSorted",
	// A .gitmodules whose names, paths, URLs or commands attacked clients of git before 2.20 and 2.30.
	"gitmodulesBlob", "gitmodulesLarge", "gitmodulesMissing", "gitmodulesName", "gitmodulesPath",
	"gitmodulesSymlink", "gitmodulesUpdate", "gitmodulesUrl",
}

// accepted are the faults of git 2.39 that are never refused and that index-pack can be told to ignore.
// It cannot be told to ignore nulInHeader and unterminatedHeader.
var accepted = []string{
	"badDate", "badDateOverflow", "badEmail", "badFilemode", "badName", "badTagName", "badTimezone", "extraHeaderEntry",
	"gitattributesBlob", "gitattributesLarge", "gitattributesLineLength", "gitattributesMissing", "gitattributesSymlink",
	"gitignoreSymlink", "gitmodulesParse", "mailmapSymlink", "missingAuthor", "missingCommitter",
	"missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "missingTaggerEntry",
	"multipleAuthors", "nulInCommit", "unknownType", "zeroPaddedDate", "zeroPaddedFilemode",
}

// maxText is the maximum size of a commit or tag, in bytes. No honest one is larger than 1 MiB. Git unpacks each of
// them in memory for each clone, and a pack of a few MB may have GBs of them.
const maxText = 4 << 20

// maxModules is the maximum number of files .gitmodules that are looked for in the repository. If there are more, the
// pack is refused.
const maxModules = 100_000

// Rules are the faults that are refused. The zero value refuses none; use [New].
type Rules struct{ refused map[string]bool }

// New returns the default rules without the faults that an operator allows. Names are compared without
// regard to case, as git does.
func New(allow []string) (Rules, error) {
	r := Rules{refused: make(map[string]bool)}
	for _, name := range refused {
		r.refused[name] = true
	}
	known := make(map[string]string) // by its name in lower case
	for _, name := range slices.Concat(refused, accepted, []string{"nulInHeader", "unterminatedHeader"}) {
		known[strings.ToLower(name)] = name
	}
	for _, name := range allow {
		exact, ok := known[strings.ToLower(name)]
		if !ok {
			return Rules{}, fmt.Errorf("%q is not a name of a fault in git fsck: the nearest is %s",
				name, known[nearest.Of(strings.ToLower(name), slices.Sorted(maps.Keys(known)))])
		}
		delete(r.refused, exact)
	}
	return r, nil
}

// Fault is why an object is refused.
type Fault struct{ Object, Reason string }

// Error names the object, and the fault.
func (f *Fault) Error() string { return "object " + f.Object + ": " + f.Reason }

// Git runs git in the repository that a pack is for.
type Git struct {
	// Index runs git index-pack with options for the pack. stderr is what git wrote if it refused the pack.
	Index func(options ...string) (stderr string, err error)
	// Run runs a command of git that sees the objects of the pack, and unless alone also those of the repository.
	Run func(alone bool, stdin io.Reader, stdout, stderr io.Writer, args ...string) error
}

// Index has git index a pack, and refuses it with a [Fault] if an object has a fault that is refused, or is a
// commit or tag that is too large.
func (r Rules) Index(git Git) error {
	found := &report{rules: r}
	stderr, err := git.Index(r.strict())
	if strings.Contains(stderr, "fsck error") || strings.Contains(stderr, "appears twice in the pack") {
		if _, _ = io.WriteString(found, stderr+"\n"); found.fault != nil {
			return found.fault
		}
		// Git also refuses what it cannot be told to ignore: the two faults above, those that a later version
		// knows, and a pack that has an object twice.
		if _, err = git.Index(); err == nil {
			// Without the objects of the repository, or fsck would check all of them. A name of an object keeps git
			// from checking refs.
			found.alone = true
			err = git.Run(true, nil, io.Discard, found, "fsck", "--no-dangling", "--no-reflogs", "--progress", "0")
			found.alone = false
			var exit interface {
				error
				ExitCode() int
			}
			if errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() < died { // it reports each fault
				err = nil
			}
		}
		// A .gitmodules that is not in the pack may be in the repository, where it may have had another name so
		// far. Git checks those that the trees of a pack name.
		if err == nil && len(found.modules) > 0 {
			err = git.Run(false, treesOf(found.modules), io.Discard, found, "unpack-objects", "-q", r.strict())
		}
	}
	if err == nil {
		err = git.Run(true, nil, found, io.Discard, "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectname) %(objectsize)")
	}
	if found.fault != nil {
		return found.fault
	}
	return err
}

// died is more than git fsck returns for the faults that it has found. Git returns more when it gives up.
const died = 64

// treesOf returns a pack of trees, in each of which one of some blobs is a .gitmodules.
func treesOf(blobs [][]byte) io.Reader {
	pack := bytes.NewBuffer(binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(blobs))))
	z := zlib.NewWriter(pack)
	for _, id := range blobs { // errors are none in memory
		tree := append([]byte("100644 .gitmodules\x00"), id...)
		_, _ = pack.Write([]byte{0xa0 | byte(len(tree)&15), byte(len(tree) >> 4)}) // a tree of that size
		z.Reset(pack)
		_, _ = z.Write(tree)
		_ = z.Close()
	}
	sum := sha1.New()
	if len(blobs[0]) == sha256.Size {
		sum = sha256.New()
	}
	_, _ = sum.Write(pack.Bytes())
	_, _ = pack.Write(sum.Sum(nil))
	return pack
}

// strict returns the argument with which git index-pack refuses faults that are refused and ignores others.
func (r Rules) strict() string {
	arg := "--strict="
	for _, name := range slices.Concat(accepted, refused) {
		if !r.refused[name] {
			arg += name + "=ignore,"
		}
	}
	return strings.TrimSuffix(arg, ",")
}

// report reads what git says of objects, and keeps the first fault that is refused.
type report struct {
	rules Rules
	line  []byte
	fault *Fault
	alone bool // git sees the objects of the pack and no others
	// modules are the ids of the files .gitmodules that git did not see.
	modules [][]byte
}

// maxLine is the maximum length of the part of a line that names the fault.
const maxLine = 200

// Write implements [io.Writer].
func (p *report) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		end := bytes.IndexAny(rest, "\r\n") // progress ends with the former
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

// read reads a line of git fsck ("error in tree <id>: hasDotgit: contains '.git'"), of git index-pack
// ("error: object <id>: hasDotgit: contains '.git'"), or of git cat-file ("commit <id> 123").
func (p *report) read(line string) {
	if p.fault != nil {
		return
	}
	object, rest, _ := strings.Cut(strings.TrimPrefix(line, "error: "), ": ")
	words := strings.Fields(object)
	name, _, ok := strings.Cut(rest, ": ")
	if ok && p.alone && name == "gitmodulesMissing" && len(words) > 0 && len(p.modules) < maxModules {
		id, _ := hex.DecodeString(words[len(words)-1]) // git wrote it
		p.modules = append(p.modules, id)
	} else if ok && p.rules.refused[name] && len(words) > 0 {
		p.fault = &Fault{words[len(words)-1], name + " (git fsck); the operator of this server may allow it (-fsck-allow " + name + ")"}
	}
	if len(words) == 3 && (words[0] == "commit" || words[0] == "tag") {
		if n, err := strconv.ParseInt(words[2], 10, 64); err == nil && n > maxText {
			p.fault = &Fault{words[1], fmt.Sprintf("a %s of %d bytes; at most %d are accepted", words[0], n, maxText)}
		}
	}
}
