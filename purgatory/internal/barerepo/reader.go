package barerepo

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/graspsync/graspsync/nip34"
)

// configs are the contents of config files. All other settings are arguments of git.
var configs = map[nip34.ObjectFormat]string{
	nip34.SHA1: "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
	nip34.SHA256: "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n" +
		"[extensions]\n\tobjectformat = sha256\n",
}

// Config returns the content of the config file for an object format.
func Config(format nip34.ObjectFormat) string { return configs[format] }

// Format returns the object format of a repository.
func Format(on Disk, dir string) (nip34.ObjectFormat, error) {
	config, err := on.ReadFile(filepath.Join(dir, "config"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if strings.Contains(strings.ReplaceAll(strings.ToLower(string(config)), " ", ""), "objectformat=sha256") {
		return nip34.SHA256, nil
	}
	return nip34.SHA1, nil
}

// AllRefs returns all refs except [HiddenRefs], about 100 times faster than git. A symbolic ref has the
// value of its target. Refs that lead to no object id are ignored, as git does. Refs may be packed
// concurrently.
func AllRefs(on Disk, dir string) (map[string]nip34.ObjectID, error) {
	at, err := anyRefs(on, dir)
	maps.DeleteFunc(at, func(_ string, id nip34.ObjectID) bool { return id.IsZero() })
	return at, err
}

// HasRefs reports whether a repository has refs except [HiddenRefs], with or without an object id.
func HasRefs(on Disk, dir string) (bool, error) {
	at, err := anyRefs(on, dir)
	return len(at) > 0, err
}

func anyRefs(on Disk, dir string) (map[string]nip34.ObjectID, error) {
	loose, symbolic := make(map[string]nip34.ObjectID), make(map[string]string)
	if err := looseRefs(on, dir, "refs", loose, symbolic); err != nil {
		return nil, err
	}
	at, err := packedRefs(on, dir)
	if err != nil {
		return nil, err
	}
	maps.Copy(at, loose)
	for name, target := range symbolic {
		for range symbolic { // it may be symbolic too
			target = cmp.Or(symbolic[target], target)
		}
		at[name] = at[target]
	}
	maps.DeleteFunc(at, func(name string, _ nip34.ObjectID) bool { return strings.HasPrefix(name, HiddenRefs) })
	return at, nil
}

// looseRefs reads the refs of a folder, and the targets of symbolic refs. The id of a ref without an
// object id is zero.
func looseRefs(on Disk, dir, folder string, into map[string]nip34.ObjectID, symbolic map[string]string) error {
	entries, err := list(on, filepath.Join(dir, filepath.FromSlash(folder)))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		if e.Name()[0] == '.' || strings.HasSuffix(name, ".lock") { // temporary file of a writing process
			continue
		}
		if e.IsDir() {
			if err := looseRefs(on, dir, name, into, symbolic); err != nil {
				return err
			}
			continue
		}
		text, err := on.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
			continue // packed or replaced concurrently
		case err != nil:
			return err
		}
		if target, ok := strings.CutPrefix(string(text), "ref: "); ok {
			symbolic[name] = strings.TrimSpace(target)
		}
		into[name], err = nip34.ParseObjectID(strings.TrimSuffix(string(text), "\n"))
		if err != nil || strings.Trim(string(text), "0\n") == "" {
			into[name] = nip34.ObjectID{}
		}
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
