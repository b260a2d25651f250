package gitfetch

import (
	"errors"
	"path/filepath"
	"strings"
	"time"
)

// unmark removes the keep files that Promote wrote before a time, or all if the time is zero.
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

// marks returns the path prefixes of packs with our keep files.
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

const keepNote = "graspsync\n"
