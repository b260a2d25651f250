package gitfetch

import (
	"errors"
	"path/filepath"
	"strings"
	"time"
)

// unmark lets garbage collection have the packs that Promote marked before a time, or all if that is zero.
func unmark(on files, dir string, before time.Time) error {
	marks, err := marks(on, dir)
	errs := []error{err}
	for _, base := range marks {
		info, err := on.Lstat(base + ".keep")
		if err == nil && (before.IsZero() || info.ModTime().Before(before)) {
			err = on.Remove(base + ".keep")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// marks returns the packs that we keep from garbage collection, without extension.
func marks(on files, dir string) (bases []string, err error) {
	folder := filepath.Join(dir, "objects", "pack")
	entries, err := on.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), ".keep")
		if !ok {
			continue
		}
		path := filepath.Join(folder, base)
		if note, err := on.ReadFile(path + ".keep"); err == nil && string(note) == keepNote {
			bases = append(bases, path)
		}
	}
	return bases, nil
}

// keepNote is in the .keep files that are ours.
const keepNote = "graspsync\n"
