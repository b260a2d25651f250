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

// remote controls the process of the relays. Only one goroutine uses it.
type remote struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	data *dataset // content of the relays
}

// startRemote starts the process with the events of a data set, and forged events with the
// signature of another author.
func startRemote(ctx context.Context, d *dataset, forged int) (_ *remote, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), relayProcess+"=1")
	cmd.Stderr = os.Stderr
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
	r := &remote{cmd: cmd, in: in, out: bufio.NewScanner(out), data: d}
	if err := r.ask(order{Do: doLoad, Path: d.path, Forged: forged}, nil); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *remote) close() error {
	return errors.Join(r.in.Close(), r.cmd.Wait())
}

func (r *remote) ask(o order, answer any) error {
	if err := json.NewEncoder(r.in).Encode(o); err != nil {
		return err
	}
	if !r.out.Scan() {
		return errors.New("the process of the relays has ended")
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(r.out.Bytes(), answer)
}

// be cuts all connections, starts n relays of one kind, and returns their URLs.
func (r *remote) be(s software, n int) (urls []string, err error) {
	var addresses []string
	err = r.ask(order{Do: doBe, Software: s, Relays: n}, &addresses)
	for _, address := range addresses {
		urls = append(urls, "ws://"+address)
	}
	return urls, err
}

func (r *remote) usage() (u usage, err error) {
	err = r.ask(order{Do: doUsage}, &u)
	return u, err
}
