package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
)

// fieldProcess is the environment variable that makes this command the servers of a field with git
// data. Its value is the folder of the field.
const fieldProcess = "GRASPSYNC_BENCH_FIELD"

// The hub's relay and the git servers share one address and have different names.
const (
	fieldRelay = "hub.example"
	fieldGit   = "git%d.example"
)

// headTime is the maximum time for reading the header of a request.
const headTime = 10 * time.Second

// startServers starts the process of the servers.
func startServers(ctx context.Context, kept string) (*child, error) {
	c, err := startChild(ctx, fieldProcess, kept)
	if err != nil {
		return nil, err
	}
	if _, err := c.line(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func serveField(path string) error {
	f, err := readGitField(path)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.address())
	if err != nil {
		return err
	}
	relay := relaytest.New("wss://"+fieldRelay, relaytest.GraspRelay())
	relay.Publish(f.Events...)
	git, err := exec.LookPath("git")
	if err != nil {
		return err
	}
	namespaces := make(map[string]string)
	for i, path := range f.Repositories {
		namespaces[path] = namespace(i)
	}
	hub, dir := relayserver.New(relay), gitFolder(path)
	server := &http.Server{ReadHeaderTimeout: headTime, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, fieldRelay) {
			hub.ServeHTTP(w, r)
			return
		}
		repo, rest, _ := strings.Cut(r.URL.Path, ".git/")
		name := namespaces[repo+".git"]
		if name == "" {
			http.NotFound(w, r)
			return
		}
		r.URL.Path = "/" + filepath.Base(dir) + "/" + rest
		(&cgi.Handler{
			Path: git, Args: []string{"http-backend"}, Logger: log.New(io.Discard, "", 0),
			Env: append(gitEnv(), "GIT_PROJECT_ROOT="+filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_NAMESPACE="+name,
				"GIT_PROTOCOL="+r.Header.Get("Git-Protocol")),
		}).ServeHTTP(w, r)
	})}
	go server.Serve(listener) // ends with the process
	fmt.Println("serving")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
