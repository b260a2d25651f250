package khatruadapter

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/fiatjaf/khatru"
)

// Information serves the relay and adds more to the NIP-11 document.
func Information(relay *khatru.Relay, more map[string]any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead || !strings.Contains(strings.ToLower(r.Header.Get("Accept")), "application/nostr+json") ||
			strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			relay.ServeHTTP(w, r)
			return
		}
		said := &document{header: make(http.Header)}
		relay.HandleNIP11(said, r)
		all := make(map[string]any)
		if err := json.Unmarshal(said.body, &all); err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		maps.Copy(all, more)
		w.Header().Set("Content-Type", "application/nostr+json")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Headers", "Content-Type, Authorization, Git-Protocol")
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
		_ = json.NewEncoder(w).Encode(all) // fails only if the client has disconnected
	})
}

type document struct {
	header http.Header
	body   []byte
}

func (d *document) Header() http.Header { return d.header }

func (d *document) Write(p []byte) (int, error) {
	d.body = append(d.body, p...)
	return len(p), nil
}

func (d *document) WriteHeader(int) {}
