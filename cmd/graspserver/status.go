package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

const (
	statusTime  = time.Minute // maximum time to compute an answer, including the wait for others
	maxStatuses = 2           // answers that are computed concurrently
)

var errAsked = errors.New("unusable question")

// statusHandler serves /status.json.
func statusHandler(server *grasp.Server) http.Handler {
	places := make(chan struct{}, maxStatuses)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), statusTime)
		defer cancel()
		status, err := func() (any, error) {
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
				return statusOf(ctx, server, r.URL)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}()
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(statusCode(err))
			status = struct {
				Error string `json:"error"`
			}{err.Error()}
		}
		text, err := json.MarshalIndent(status, "", "  ")
		if err != nil {
			text = []byte("null")
		}
		_, _ = w.Write(append(graspsync.PrintableJSON(text), '\n')) // fails only if the client is gone
	})
}

func statusCode(err error) int {
	switch {
	case errors.Is(err, errAsked):
		return http.StatusBadRequest
	case errors.Is(err, relaysync.ErrNotRunning), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

var subjects = map[string]nip34.SubjectKind{
	"event": nip34.SubjectEvent, "repo": nip34.SubjectRepo, "relay": nip34.SubjectRelay,
}

func statusOf(ctx context.Context, server *grasp.Server, u *url.URL) (any, error) {
	asked, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(asked) > 1 {
		return nil, fmt.Errorf("%w: want one of ?event=, ?repo= and ?relay=", errAsked)
	}
	var name, text string
	for of, texts := range asked {
		if name, text = of, texts[0]; subjects[of] == 0 || len(texts) > 1 {
			return nil, fmt.Errorf("%w: %s: want one of ?event=, ?repo= and ?relay=", errAsked, graspsync.Printable(of))
		}
	}
	switch {
	case name == "":
		return struct {
			relaysync.Status
			Purgatory purgatory.Status `json:"purgatory"`
		}{server.Sync().Manager().Status(), server.Purgatory().Status()}, nil
	case name == "repo" && text == "all":
		refs, err := server.Sync().Manager().RepoRefs(ctx)
		if err != nil {
			return nil, err
		}
		all, err := server.Sync().Manager().RepoStatus(ctx, refs...)
		return append([]relaysync.RepoStatus{}, all...), err
	}
	about, err := nip34.ParseSubject(text)
	if err != nil {
		return nil, fmt.Errorf("%w: ?%s=: %w", errAsked, name, err)
	}
	if about.Kind != subjects[name] {
		return nil, fmt.Errorf("%w: ?%s= names a %s", errAsked, name, about.Kind)
	}
	return server.Explain(ctx, text)
}
