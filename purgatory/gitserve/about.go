package gitserve

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
)

// About is what there is of a repository on the disk, for people.
type About struct {
	Here bool   `json:"here"`
	Dir  string `json:"dir,omitempty"` // where it is, or was put aside, below the folder of repositories
	// Branches and Tags that it has; HEAD is the default branch, "" if there is none.
	Branches int    `json:"branches"`
	Tags     int    `json:"tags"`
	HEAD     string `json:"head,omitempty"`
	// Departed is since when it is out of service, zero if it is not; it is kept for a week.
	Departed time.Time `json:"departed,omitzero"`
}

// About returns what there is of a repository. It reads the names of its refs, without git.
func (r *Repositories) About(ref graspsync.RepoRef) (a About, err error) {
	at := r.at(ref)
	refs, head, err := r.shown(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r.aboutDeparted(at)
	case err != nil:
		return About{}, fmt.Errorf("looking at a repository: %w", err)
	}
	a = About{Here: true, Dir: at, HEAD: graspsync.Printable(head)}
	for name := range refs {
		switch {
		case strings.HasPrefix(name, "refs/heads/"):
			a.Branches++
		case strings.HasPrefix(name, "refs/tags/"):
			a.Tags++
		}
	}
	return a, nil
}

func (r *Repositories) aboutDeparted(at string) (a About, err error) {
	aside := path.Join(departed, at)
	text, err := r.root.ReadFile(path.Join(aside, since))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return About{}, nil
	case err != nil:
		return About{}, fmt.Errorf("looking at a repository: %w", err)
	}
	if a.Departed, err = time.Parse(time.RFC3339, strings.TrimSpace(string(text))); err != nil {
		return About{}, fmt.Errorf("looking at a repository: %w", err)
	}
	a.Dir = aside
	return a, nil
}
