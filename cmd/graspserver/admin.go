package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/adapter/statuspage"
)

// adminOff is the -admin-listen of whoever wants none.
const adminOff = "off"

// adminSite is what whoever runs the server sees of it: a page, its metrics, its status.
type adminSite struct {
	*http.ServeMux
	page *statuspage.Page
}

func newAdminSite(server *grasp.Server, opt options, more ...prometheus.Collector) (*adminSite, error) {
	page, err := statuspage.New(statuspage.Config{
		Name: bare(opt.domain), Sync: server.Sync().Manager(), Purgatory: server.Purgatory(), Ready: server.Ready,
		Explain: func(ctx context.Context, question string) (string, error) {
			answer, err := server.Explain(ctx, question)
			return answer.String(), err
		},
		Rules: statuspage.RulesOf(server.Control("").Rules()),
		Links: []statuspage.Link{{Text: "Metrics", Href: "../metrics"}, {Text: "Status as JSON", Href: "../status.json"}},
	})
	if err != nil {
		return nil, err
	}
	a := &adminSite{http.NewServeMux(), page}
	handleStatus(a.ServeMux, server, more...)
	a.Handle("GET /status/", http.StripPrefix("/status", page))
	a.HandleFunc("GET /healthz", healthy)
	a.HandleFunc("GET /readyz", ready(server, true))
	a.HandleFunc("POST /{$}", notHere)
	a.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "status/", http.StatusFound) })
	return a, nil
}

// notHere answers commands that went to the wrong one of our two addresses.
func notHere(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", admin.ContentType)
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintln(w, `{"error":"this is -admin-listen, which accepts no commands; -url must be the -listen address"}`)
}

// guarded keeps other sites that a browser here has open from what is served: over a loopback address
// nobody reaches us by a name that is not ours, but who has had one point there. That goes for each
// connection: a listener at all addresses has that one as well.
func guarded(h http.Handler, ours []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case overLoopback(r) && !isLocal(r.Host) && !slices.Contains(ours, hostname(r.Host)):
			http.Error(w, "Host must be an IP address, localhost or -domain at a loopback address", http.StatusMisdirectedRequest)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
			http.Error(w, "not for other sites", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// namesOf are the names that others reach a server by.
func namesOf(opt options) (names []string) {
	for _, domain := range append([]string{opt.domain}, opt.also...) {
		host, _, _ := strings.Cut(bare(domain), "/")
		names = append(names, hostname(host))
	}
	return names
}

// hostname is a Host without its port, in small letters.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(host)
}

// isLocal reports whether a Host, with a port or without, is an IP address or localhost.
func isLocal(host string) bool {
	name := hostname(host)
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil || name == "localhost"
}

// overLoopback reports whether a request came to a loopback address.
func overLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// healthy says that the process is alive.
func healthy(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// ready says whether the server can do its work: with code 503 if not, and why to those who may know.
func ready(server *grasp.Server, why bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := server.Ready(r.Context())
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case err == nil:
			fmt.Fprintln(w, "ready")
		case why:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	}
}

// adminAddress is where the admin site is: at the port after that of -listen, unless somebody says
// otherwise, so that each of several servers on a machine has its own.
func adminAddress(opt options, own net.Addr) (address string, chosen bool) {
	if opt.adminListen != "" {
		return opt.adminListen, true
	}
	at, ok := own.(*net.TCPAddr)
	if !ok || at.Port == 1<<16-1 {
		return adminOff, false
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(at.Port+1)), false
}

// serveAdmin serves the admin site until stop is called: at an address of its own, or, where that is
// the one that everybody reaches, as a part of what they see.
func serveAdmin(a *adminSite, everybody *http.ServeMux, opt options, own net.Addr, log *slog.Logger) (stop func(), err error) {
	address, chosen := adminAddress(opt, own)
	site := guarded(a, namesOf(opt))
	switch address {
	case adminOff:
		log.Info("status page disabled by -admin-listen")
		return func() {}, nil
	case opt.listen:
		for _, path := range []string{"GET /metrics", "GET /status.json", "GET /status/"} {
			everybody.Handle(path, site)
		}
		log.Info("serving the status page publicly", "path", "/status/")
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		if chosen {
			return nil, fmt.Errorf("-admin-listen: %w", err)
		}
		log.Error("status page not served, set -admin-listen", "error", err)
		return func() {}, nil
	}
	front, done := newFront(withDeadline(site), log), make(chan struct{})
	go func() {
		defer close(done)
		if err := front.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serving the status page failed", "error", err)
		}
	}()
	log.Info("serving the status page", "page", "http://"+listener.Addr().String()+"/")
	return func() {
		front.Close() // also those who follow the page
		<-done
	}, nil
}
