package gitfetch_test

import (
	"context"
	"fmt"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// fetch fetches a complete object from a server into a bare repository, which stays unchanged until
// the object is complete. Package purgatory does this itself.
func fetch(ctx context.Context, f *gitfetch.Fetcher, dir string, from graspsync.CloneURL, id nip34.ObjectID) error {
	q, err := f.Quarantine(ctx, dir)
	if err != nil {
		return err
	}
	defer q.Discard()
	err = f.Fetch(ctx, purgatory.FetchRequest{
		From: from, Want: []nip34.ObjectID{id}, Dir: dir, Quarantine: q.Folder(), Received: new(atomic.Int64),
	})
	if err != nil {
		return err
	}
	missing, err := q.Missing(ctx, []nip34.ObjectID{id})
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s has not all of %s", from, id)
	}
	return q.Promote(ctx)
}

// A commit is fetched from a server on this machine, which the dialer must allow explicitly.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "gitfetch")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	theirs, ours := filepath.Join(dir, "theirs.git"), filepath.Join(dir, "ours.git")
	var commit string
	for _, args := range [][]string{
		{"init", "-q", "--bare", ours}, {"init", "-q", "--bare", theirs},
		{"-C", theirs, "hash-object", "-t", "tree", "-w", os.DevNull},
		{"-C", theirs, "-c", "user.name=alice", "-c", "user.email=", "commit-tree", "-m", "empty", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"},
	} {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			fmt.Println(args, err)
			return
		}
		commit = strings.TrimSpace(string(out))
	}
	if err := exec.CommandContext(ctx, "git", "-C", theirs, "update-ref", "refs/heads/main", commit).Run(); err != nil {
		fmt.Println(err)
		return
	}
	program, err := exec.LookPath("git")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(&cgi.Handler{
		Path: program, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"},
	})
	defer server.Close()

	from, err := graspsync.ParseCloneURL(server.URL + "/theirs.git")
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := nip34.ParseObjectID(commit)
	if err != nil {
		fmt.Println(err)
		return
	}
	dialer, err := egress.NewDialer(egress.Config{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPlaintext: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fetcher, err := gitfetch.New(ctx, gitfetch.Config{Dialer: dialer})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fetcher.Close()
	if err := fetch(ctx, fetcher, ours, from, id); err != nil {
		fmt.Println(err)
		return
	}
	missing, err := fetcher.Missing(ctx, ours, []nip34.ObjectID{id})
	fmt.Println(len(missing), "missing", err)
	// Output: 0 missing <nil>
}
