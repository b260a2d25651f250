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

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/adapter/statuspage"
)

// adminOff is the value of -admin-listen that disables the operator's pages.
const adminOff = "off"

func newAdminSite(server *grasp.Server, opt options, more ...prometheus.Collector) (http.Handler, error) {
	page, err := statuspage.New(statuspage.Config{
		Name: bare(opt.Domain), Sync: server.Sync().Manager(), Purgatory: server.Purgatory(), Ready: server.Ready,
		Explain: server.Explain,
		Links:   []statuspage.Link{{Text: "Metrics", Href: "../metrics"}, {Text: "Status as JSON", Href: "../status.json"}},
		Version: version(), Folder: opt.Data,
	})
	if err != nil {
		return nil, err
	}
	a := http.NewServeMux()
	handleStatus(a, server, more...)
	a.Handle("GET /status/", http.StripPrefix("/status", page))
	a.HandleFunc("GET /healthz", healthy)
	a.HandleFunc("GET /readyz", ready(server, true))
	a.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "status/", http.StatusFound) })
	return a, nil
}

// guarded protects a site from other sites in a browser of this machine, also after DNS rebinding.
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

func namesOf(opt options) (names []string) {
	for _, domain := range append([]string{opt.Domain}, opt.AlsoDomain...) {
		host, _, _ := strings.Cut(bare(domain), "/")
		names = append(names, hostname(host))
	}
	return names
}

func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(host)
}

func isLocal(host string) bool {
	name := hostname(host)
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil || name == "localhost"
}

func overLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

func healthy(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

func ready(server *grasp.Server, why bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := server.Ready(r.Context())
		w.Header().Set("Cache-Control", "no-store")
		if err != nil && !why {
			err = errors.New("not ready")
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	}
}

func adminAddress(opt options, own net.Addr) (address string, chosen bool) {
	if opt.AdminListen != "" {
		return opt.AdminListen, true
	}
	at, ok := own.(*net.TCPAddr)
	if !ok || at.Port == 1<<16-1 {
		return adminOff, false
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(at.Port+1)), false
}

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// listenAdmin returns nil if the pages have no listener of their own.
func listenAdmin(opt options, public net.Addr, log *slog.Logger) (net.Listener, error) {
	address, chosen := adminAddress(opt, public)
	switch address {
	case adminOff:
		log.Info("status page disabled by -admin-listen")
		return nil, nil
	case opt.Listen:
		return nil, nil
	}
	listener, err := net.Listen("tcp", address)
	switch {
	case err != nil && chosen:
		return nil, fmt.Errorf("-admin-listen: %w", err)
	case err != nil:
		log.Error("status page not served, set -admin-listen", "error", err)
		return nil, nil
	}
	return listener, nil
}

func serveAdmin(ctx context.Context, listener net.Listener, a http.Handler, everybody *http.ServeMux, opt options, log *slog.Logger) (stop func()) {
	site := guarded(a, namesOf(opt))
	switch {
	case opt.AdminListen == opt.Listen:
		for _, path := range []string{"GET /metrics", "GET /status.json", "GET /status/"} {
			everybody.Handle(path, site)
		}
		log.Info("serving the status page publicly", "path", "/status/")
		return func() {}
	case listener == nil:
		return func() {}
	}
	log.Info("serving the status page", "page", "http://"+listener.Addr().String()+"/")
	ctx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := gate.Serve(ctx, listener, withDeadline(site), untilDone); err != nil {
			log.Error("serving the status page failed", "error", err)
		}
	}()
	return func() {
		end()
		<-done
	}
}
