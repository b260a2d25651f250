package barerepo

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/graspsync/graspsync/nip34"
)

// ErrAskGit reports that only git can read a repository.
var ErrAskGit = errors.New("only git can read this")

// configs are the contents of config files. All other settings are arguments of git.
var configs = map[nip34.ObjectFormat]string{
	nip34.SHA1: "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
	nip34.SHA256: "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n" +
		"[extensions]\n\tobjectformat = sha256\n",
}

// Config returns the content of the config file for an object format.
func Config(format nip34.ObjectFormat) string { return configs[format] }

// Format returns the object format of a repository. The error wraps [ErrAskGit] if the config file
// was changed.
func Format(on Disk, dir string) (nip34.ObjectFormat, error) {
	config, err := on.ReadFile(filepath.Join(dir, "config"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for format, text := range configs {
		if string(config) == text {
			return format, nil
		}
	}
	return 0, fmt.Errorf("%w: the config is not ours", ErrAskGit)
}

// AllRefs returns all refs except [HiddenRefs], about 100 times faster than git. Refs may be packed
// concurrently, but not change. The error wraps [ErrAskGit] if a ref does not contain an object id.
func AllRefs(on Disk, dir string) (map[string]nip34.ObjectID, error) {
	loose := make(map[string]nip34.ObjectID)
	if err := looseRefs(on, dir, "refs", loose); err != nil {
		return nil, err
	}
	at, err := packedRefs(on, dir)
	if err != nil {
		return nil, err
	}
	maps.Copy(at, loose)
	maps.DeleteFunc(at, func(name string, _ nip34.ObjectID) bool { return strings.HasPrefix(name, HiddenRefs) })
	return at, nil
}

func looseRefs(on Disk, dir, folder string, into map[string]nip34.ObjectID) error {
	entries, err := list(on, filepath.Join(dir, filepath.FromSlash(folder)))
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %s became a ref, or is below one", ErrAskGit, folder)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		switch {
		case e.Name()[0] == '.' || strings.HasSuffix(name, ".lock"):
			continue // temporary file of a writing process
		case e.IsDir():
			if err := looseRefs(on, dir, name, into); err != nil {
				return err
			}
			continue
		case !e.Type().IsRegular():
			return fmt.Errorf("%w: %s is no file", ErrAskGit, name)
		}
		text, err := on.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // packed concurrently
		}
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w: %s became a folder", ErrAskGit, name)
		}
		if err != nil {
			return err
		}
		id, err := nip34.ParseObjectID(strings.TrimSuffix(string(text), "\n"))
		if err != nil || strings.Trim(id.String(), "0") == "" {
			return fmt.Errorf("%w: %s names no object", ErrAskGit, name)
		}
		into[name] = id
	}
	return nil
}

// Null returns git's null id.
func Null(format nip34.ObjectFormat) string {
	if format == nip34.SHA256 {
		return strings.Repeat("0", 64)
	}
	return strings.Repeat("0", 40)
}
