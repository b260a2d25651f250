package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/graspsync/graspsync/filters"
)

// scratch makes a file that is on no folder's list, and gone when it is closed.
func (h *Handler) scratch() (*os.File, error) {
	file, err := os.CreateTemp(filepath.Join(h.repos.dir, incoming), "body")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// kept takes an answer at git's speed, for a client that takes it at its own: no child
// process, and no place, waits for that one.
type kept struct {
	http.ResponseWriter
	file   *os.File
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (k *kept) WriteHeader(status int) { k.status = status }

// Write implements [io.Writer].
func (k *kept) Write(p []byte) (int, error) { return k.file.Write(p) }

// send hands on what was kept.
func (k *kept) send() error {
	if _, err := k.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("keeping an answer: %w", err)
	}
	if k.status != 0 {
		k.ResponseWriter.WriteHeader(k.status)
	}
	_, err := io.Copy(onlyWriter{k.ResponseWriter}, k.file)
	return err
}

// onlyWriter hides what else a writer can do.
type onlyWriter struct{ io.Writer }

// advertise has git say what is here. Everybody may ask for that, so who is slow to
// hear it keeps no place.
func (h *Handler) advertise(ctx context.Context, w http.ResponseWriter, r *http.Request, ref filters.RepoRef, dir, service string, way lane) {
	leave, err := wait(ctx, way.places, h.cfg.Wait)
	if err != nil {
		busy(w)
		return
	}
	defer leave()
	file, err := h.scratch()
	if err != nil {
		h.fail(w, ref, fmt.Errorf("keeping an answer: %w", err))
		return
	}
	defer func() { _ = file.Close() }() // it has no name: nothing is left of it
	out := &kept{ResponseWriter: w, file: file}
	h.run(ctx, out, ref, call{
		dir: dir, path: "/info/refs", query: "service=" + service, method: http.MethodGet, protocol: protocolOf(r),
	})
	leave()
	_ = out.send() // the client is gone if this fails
}
