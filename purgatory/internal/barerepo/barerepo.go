// Package barerepo contains operations on bare repositories that both fetches and pushes need.
package barerepo

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Disk is a file system, or a folder that names are relative to.
type Disk interface {
	Mkdir(name string, mode fs.FileMode) error
	OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error)
	ReadFile(name string) ([]byte, error)
	Lstat(name string) (fs.FileInfo, error)
	Remove(name string) error
}

// Transaction returns the input of git update-ref --stdin -z that makes all changes or none.
func Transaction(changes []refplan.RefChange) io.Reader {
	id := func(id, other nip34.ObjectID) string {
		if id.IsZero() {
			return Null(other.Format())
		}
		return id.String()
	}
	var b bytes.Buffer
	b.WriteString("start\x00")
	for _, c := range changes {
		fmt.Fprintf(&b, "update %s\x00%s\x00%s\x00", c.Name, id(c.New, c.Old), id(c.Old, c.New))
	}
	b.WriteString("prepare\x00commit\x00")
	return &b
}

// LogRemoved appends the reflogs of the refs that changes delete, and a line for each ref, to the
// reflog of HEAD, durably, because git deletes the reflog of a ref with the ref. Event refs are
// skipped, because their events name their values.
func LogRemoved(on Disk, dir string, changes []refplan.RefChange, now time.Time) error {
	refs := slices.DeleteFunc(slices.Clone(changes), func(c refplan.RefChange) bool {
		return !c.New.IsZero() || strings.HasPrefix(c.Name.String(), "refs/nostr/")
	})
	if len(refs) == 0 {
		return nil
	}
	if err := on.Mkdir(filepath.Join(dir, "logs"), 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	file, err := on.OpenFile(filepath.Join(dir, "logs", "HEAD"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, r := range refs {
		log, err := readLog(on, filepath.Join(dir, "logs", filepath.FromSlash(r.Name.String())))
		if err != nil {
			return errors.Join(err, file.Close())
		}
		b.Write(log)
		fmt.Fprintf(&b, "%s %s graspsync <graspsync> %d +0000\tgraspsync: deleted %s\n", r.Old, r.Old, now.Unix(), r.Name)
	}
	_, err = file.Write(b.Bytes())
	return errors.Join(err, file.Sync(), file.Close())
}

// NewPackName returns an unused name of a pack. The usual name is a hash of its content. A repack that
// has listed a pack of this name would delete it even if it has come again in between.
func NewPackName() string {
	id := make([]byte, 32)
	_, _ = rand.Read(id) // never fails
	return "pack-" + hex.EncodeToString(id)
}

// KeepNote is the content of our keep files.
const KeepNote = "graspsync\n"

// maxLog is the maximum size kept of one reflog, in bytes.
const maxLog = 1 << 20

// QuarantinePrefix is the name prefix of quarantine folders.
const QuarantinePrefix = "graspsync-quarantine-"

// HiddenRefs is the prefix of refs that protect objects from garbage collection. Clients do not see
// them.
const HiddenRefs = "refs/graspsync/"

func readLog(on Disk, path string) ([]byte, error) {
	file, err := on.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() { // a folder of refs
		return nil, err
	}
	skipped := max(0, info.Size()-maxLog)
	log, err := io.ReadAll(io.NewSectionReader(file, skipped, maxLog))
	if skipped > 0 {
		log = log[bytes.IndexByte(log, '\n')+1:]
	}
	return log[:bytes.LastIndexByte(log, '\n')+1], err
}

// SyncRefs makes changes of refs and reflogs durable, because git does not sync folders.
func SyncRefs(dir string, names []nip34.RefName, sync func(folder string) error) error {
	seen := make(map[string]bool)
	var errs []error
	visit := func(folder string) {
		if seen[folder] {
			return
		}
		seen[folder] = true
		if err := sync(filepath.Join(dir, filepath.FromSlash(folder))); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			errs = append(errs, err)
		}
	}
	for _, name := range names {
		for at := path.Dir(name.String()); at != "."; at = path.Dir(at) {
			visit(at)
			visit(path.Join("logs", at))
		}
	}
	if len(names) > 0 {
		visit("logs")
		visit(".") // contains packed-refs
	}
	return errors.Join(errs...)
}

func packedRefs(on Disk, dir string) (map[string]nip34.ObjectID, error) {
	at := make(map[string]nip34.ObjectID)
	text, err := on.ReadFile(filepath.Join(dir, "packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' || line[0] == '^' {
			continue
		}
		hex, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if at[name], err = nip34.ParseObjectID(hex); err != nil {
			return nil, fmt.Errorf("reading packed-refs: %w", err)
		}
	}
	return at, nil
}
