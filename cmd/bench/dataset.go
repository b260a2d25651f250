package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// datasetVersion must change when the events of a hub change.
const datasetVersion = 2

// dataset is a file with the events of a hub, one per line. Only ids are in memory, so that events
// do not affect the measurement.
type dataset struct {
	path         string
	ids          []graspsync.EventID // sorted
	repos, roots int
}

// openDataset returns a hub of n events. It uses a cached file if there is one.
func openDataset(dir string, n int) (*dataset, error) {
	d := &dataset{
		path:  filepath.Join(dir, fmt.Sprintf("hub-%d-v%d.jsonl", n, datasetVersion)),
		repos: n * perMilleRepos / 1000,
		roots: n*perMillePatches/1000 + n*perMillePulls/1000 + n*perMilleIssues/1000,
	}
	if _, err := os.Stat(d.path); err != nil {
		if err := makeDataset(d.path, n); err != nil {
			return nil, fmt.Errorf("making a data set: %w", err)
		}
	}
	if err := d.readIDs(); err != nil {
		return nil, err
	}
	if len(d.ids) != n {
		return nil, fmt.Errorf("%s has %d events", d.path, len(d.ids))
	}
	return d, nil
}

// makeDataset writes a file atomically.
func makeDataset(path string, n int) error {
	defer debug.FreeOSMemory() // else the next measurement starts with a large heap
	events, err := newHub(n)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "making-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails after the rename
	defer file.Close()
	w := bufio.NewWriter(file)
	for _, ev := range events {
		line, err := ev.MarshalJSON()
		if err != nil {
			return err
		}
		w.Write(line)
		w.WriteByte('\n')
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

var idBegins = []byte(`"id":"`) // quotes are escaped in contents and tags

func (d *dataset) readIDs() error {
	for line, err := range d.lines() {
		if err != nil {
			return err
		}
		_, rest, ok := bytes.Cut(line, idBegins)
		if !ok || len(rest) < 2*len(graspsync.EventID{}) {
			return fmt.Errorf("%s: an event without an id", d.path)
		}
		id, err := graspsync.ParseEventID(string(rest[:2*len(graspsync.EventID{})]))
		if err != nil {
			return err
		}
		d.ids = append(d.ids, id)
	}
	slices.SortFunc(d.ids, compareIDs)
	return nil
}

func compareIDs(a, b graspsync.EventID) int { return bytes.Compare(a[:], b[:]) }

func (d *dataset) has(id graspsync.EventID) bool {
	_, ok := slices.BinarySearchFunc(d.ids, id, compareIDs)
	return ok
}

// lines yields the JSON of the events. A line is valid until the next one.
func (d *dataset) lines() iter.Seq2[[]byte, error] { return linesOf(d.path) }

func (d *dataset) events() iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for line, err := range d.lines() {
			if err != nil {
				yield(graspsync.Event{}, err)
				return
			}
			message, err := wire.Parse(fmt.Appendf(nil, `["EVENT","",%s]`, line))
			if !yield(message.Event, err) || err != nil {
				return
			}
		}
	}
}

func linesOf(path string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close()
		r := bufio.NewReaderSize(file, maxLine)
		for {
			line, err := r.ReadSlice('\n')
			if errors.Is(err, io.EOF) && len(line) == 0 {
				return
			}
			if err != nil {
				yield(nil, fmt.Errorf("%s: %w", path, err))
				return
			}
			if !yield(line[:len(line)-1], nil) {
				return
			}
		}
	}
}
