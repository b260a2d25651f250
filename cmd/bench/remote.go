package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
)

// child is another process of this command with a role, so that its CPU time is not counted as
// ours. Only one goroutine uses it.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startChild starts the role of an environment variable.
func startChild(ctx context.Context, role, value string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env, cmd.Stderr = append(os.Environ(), role+"="+value), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd: cmd, in: in, out: bufio.NewScanner(out)}, cmd.Start()
}

// line returns the next line that the process prints.
func (c *child) line() (string, error) {
	if !c.out.Scan() {
		return "", errors.Join(errors.New("the other process has ended"), c.out.Err())
	}
	return c.out.Text(), nil
}

// close ends the process, which ends with its input.
func (c *child) close() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// remote controls the process of a relay.
type remote struct{ *child }

// startRemote starts the process with the events of a data set, and forged events with the
// signature of another author.
func startRemote(ctx context.Context, d *dataset, forged int) (*remote, error) {
	c, err := startChild(ctx, relayProcess, "1")
	if err != nil {
		return nil, err
	}
	r := &remote{c}
	if err := r.ask(order{Do: doLoad, Path: d.path, Forged: forged}, nil); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *remote) ask(o order, answer any) error {
	if err := json.NewEncoder(r.in).Encode(o); err != nil {
		return err
	}
	line, err := r.line()
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal([]byte(line), answer)
}

// be cuts all connections, starts a relay, and returns its URL.
func (r *remote) be(s software) (url string, err error) {
	err = r.ask(order{Do: doBe, Software: s}, &url)
	return "ws://" + url, err
}

func (r *remote) usage() (u usage, err error) {
	err = r.ask(order{Do: doUsage}, &u)
	return u, err
}
