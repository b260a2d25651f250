package main

import (
	"cmp"
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
	statusTime  = time.Minute // to compute an answer, with the wait for others
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
		switch {
		case errors.Is(err, errAsked):
			w.WriteHeader(http.StatusBadRequest)
		case err != nil: // starting, ending or busy
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if err != nil {
			status = map[string]string{"error": err.Error()}
		}
		text, err := json.MarshalIndent(status, "", "  ")
		if err != nil {
			text = []byte("null")
		}
		_, _ = w.Write(append(graspsync.PrintableJSON(text), '\n')) // fails only if the client is gone
	})
}

func statusOf(ctx context.Context, server *grasp.Server, u *url.URL) (any, error) {
	asked, err := url.ParseQuery(u.RawQuery)
	manager := server.Sync().Manager()
	switch {
	case err == nil && len(asked) == 0:
		return struct {
			relaysync.Status
			Purgatory purgatory.Status `json:"purgatory"`
		}{manager.Status(), server.Purgatory().Status()}, nil
	case len(asked) == 1 && asked.Get("repo") == "all":
		refs, err := manager.RepoRefs(ctx)
		if err != nil {
			return nil, err
		}
		all, err := manager.RepoStatus(ctx, refs...)
		return append([]relaysync.RepoStatus{}, all...), err
	}
	text := cmp.Or(asked.Get("event"), asked.Get("repo"), asked.Get("relay"))
	if _, err := nip34.ParseSubject(text); err != nil {
		return nil, fmt.Errorf("%w, want one event, repository or relay as ?event=, ?repo= or ?relay=: %w", errAsked, err)
	}
	return server.Explain(ctx, text)
}
