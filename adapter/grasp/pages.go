package grasp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr/nip11"

	"github.com/graspsync/graspsync/adapter/pages"
)

type front struct {
	relay *khatru.Relay
	next  http.Handler
	pages http.Handler
	whole bool // the server has a whole host, not only paths
}

const nip05 = "/.well-known/nostr.json"

func (f front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, pattern := f.relay.Router().Handler(r)
	switch {
	case pattern != "":
		f.next.ServeHTTP(w, r)
		return
	case f.whole && r.URL.Path == nip05 && f.relay.Info.PubKey != "" && isReading(r):
		f.names(w)
		return
	case !isPage(r) && (f.whole || r.URL.Path == "/"): // under a path of the identity, only "/" is certain to be ours
		f.next.ServeHTTP(w, r)
		return
	}
	f.pages.ServeHTTP(w, r)
}

func about(i *nip11.RelayInformationDocument, criteria, curation string) pages.About {
	a := pages.About{
		Name: i.Name, Description: i.Description, Contact: i.Contact, Icon: i.Icon, Version: i.Version,
		Criteria: criteria, Curation: curation, GRASPs: grasps,
	}
	for _, n := range i.SupportedNIPs {
		a.NIPs = append(a.NIPs, fmt.Sprint(n))
	}
	return a
}

// names serves the key of the relay's operator as the NIP-05 name "_".
func (f front) names(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	_ = json.NewEncoder(w).Encode(map[string]any{"names": map[string]string{"_": f.relay.Info.PubKey}}) // fails only if the client has disconnected
}

// isPage reports whether a request can come from a browser, not for the NIP-11 document or NIP-86.
func isPage(r *http.Request) bool {
	return isReading(r) && !strings.Contains(strings.ToLower(r.Header.Get("Accept")), "application/nostr+json") && r.Header.Get("Content-Type") != "application/nostr+json+rpc"
}

func isReading(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
}
