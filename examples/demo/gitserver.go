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
	"os/exec"
	"path/filepath"
	"time"
)

// The git servers.
const (
	oak = iota
	elm
	gitServers
)

var gitServerNames = [gitServers]string{"oak", "elm"}

var gitServerTraits = [gitServers]string{"protocol v2", "protocol v0 only"}

// gitServer serves bare repositories by git http-backend.
type gitServer struct {
	name     string
	addr     string // host:port
	dir      string
	listener net.Listener
	server   *http.Server
}

// newGitServer makes a server for the repositories below dir and starts it.
func newGitServer(ctx context.Context, i int, dir string) (*gitServer, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	s := &gitServer{name: gitServerNames[i], dir: filepath.Join(dir, gitServerNames[i])}
	if s.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.name, err)
	}
	s.addr = s.listener.Addr().String()
	backend := &cgi.Handler{
		Path: git, Args: []string{"http-backend"}, Stderr: io.Discard, Logger: log.New(io.Discard, "", 0),
		Env: append(gitEnv(), "GIT_PROJECT_ROOT="+s.dir, "GIT_HTTP_EXPORT_ALL=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=uploadpack.allowReachableSHA1InWant", "GIT_CONFIG_VALUE_0=true"),
	}
	s.server = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i == elm {
			r.Header.Del("Git-Protocol")
		}
		backend.ServeHTTP(w, r)
	})}
	go func() {
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // nothing of the demo works without it
		}
	}()
	return s, nil
}

// url is where a repository is.
func (s *gitServer) url(path string) string { return "http://" + s.addr + "/" + path }
