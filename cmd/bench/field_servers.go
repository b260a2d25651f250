package main

import (
	"bufio"
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

// fieldServers is the process of the servers, so that their CPU time is not counted as ours.
type fieldServers struct {
	cmd *exec.Cmd
	in  io.Closer
}

func startServers(kept string) (*fieldServers, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env, cmd.Stderr = append(os.Environ(), fieldProcess+"="+kept), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &fieldServers{cmd: cmd, in: in}
	if !bufio.NewScanner(out).Scan() {
		return nil, errors.Join(errors.New("the servers did not start"), s.stop())
	}
	return s, nil
}

func (s *fieldServers) stop() error {
	return errors.Join(s.in.Close(), s.cmd.Wait())
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
	for i, r := range f.Repositories {
		namespaces[r.Path] = namespace(i)
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
			Env: []string{
				"GIT_PROJECT_ROOT=" + filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_NAMESPACE=" + name,
				"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"),
			},
		}).ServeHTTP(w, r)
	})}
	go server.Serve(listener) // ends with the process
	fmt.Println("serving")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
