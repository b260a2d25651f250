package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
)

// ContentType is the media type of NIP-86.
const ContentType = "application/nostr+json+rpc"

const (
	maxBody        = 64 << 10         // bytes of a request
	bodyTimeout    = 10 * time.Second // to receive a request
	commandTimeout = 10 * time.Minute // for a command
	answerTimeout  = 10 * time.Second // to write an answer
)

// ErrUsage means that a command is unknown or has wrong arguments.
var ErrUsage = errors.New("invalid command")

// Operator carries out commands, also concurrently.
type Operator interface {
	Commands() []string
	// Do carries out and records a command by an npub. A nil result becomes true. The error is sent to
	// the client.
	Do(ctx context.Context, by, command string, args ...string) (any, error)
}

// Config is the settings of a [Handler]. Owners is required, and Identity or URLs.
type Config struct {
	Owners []graspsync.PubKey
	// Identity is the relay that is managed. A request must name it as wss:// or https://.
	Identity nip34.Identity
	// URLs are other URLs of the handler. Other servers at such a URL, as on loopback, accept the
	// signatures too.
	URLs []string
	// State keeps the ids of accepted requests. Without it requests are refused for a minute after New.
	State state.Store
	// Client defaults to the address. Clients take turns.
	Client func(*http.Request) string
	Logger *slog.Logger
}

// ErrConfig is wrapped by the error of [New].
var ErrConfig = errors.New("invalid configuration")

// Handler carries out commands of owners.
type Handler struct {
	// read-only
	operator Operator
	client   func(*http.Request) string
	log      *slog.Logger

	auth *auth
}

// New returns a Handler.
func New(operator Operator, cfg Config) (*Handler, error) {
	var errs []error
	if operator == nil {
		errs = append(errs, errors.New("operator is nil"))
	}
	if len(cfg.Owners) == 0 {
		errs = append(errs, errors.New("Owners is empty"))
	}
	if len(cfg.URLs) == 0 && cfg.Identity.IsZero() {
		errs = append(errs, errors.New("Identity and URLs are empty"))
	}
	urls := make(map[graspsync.URL]bool)
	for _, text := range cfg.URLs {
		u, err := parseURL(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("URLs: %q: %w", text, err))
		}
		urls[u] = true
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrConfig, errors.Join(errs...))
	}
	h := &Handler{
		operator: operator, client: cfg.Client, log: cfg.Logger,
		auth: &auth{owners: make(map[graspsync.PubKey]bool), identity: cfg.Identity, urls: urls, used: cfg.State, verifySlots: limit.NewSlots(1, 1)},
	}
	if cfg.State == nil { // an earlier process may have accepted requests dated up to a window ahead
		h.auth.used, h.auth.notBefore = state.NewMemory(), time.Now().Add(authWindow).Unix()
	}
	for _, k := range cfg.Owners {
		h.auth.owners[k] = true
	}
	if h.client == nil {
		h.client = clientOf
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	return h, nil
}

func clientOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return limit.Client(at.Addr()).ID
}

// Middleware returns a handler that passes other requests to next.
func (h *Handler) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isManagement(r) {
			h.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isManagement(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == ContentType
}

type answer struct {
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*") // safe, because only signatures count
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
	switch {
	case r.Method == http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "OPTIONS, POST")
		h.write(w, http.StatusMethodNotAllowed, answer{Error: "want POST"})
		return
	case !isManagement(r):
		h.write(w, http.StatusUnsupportedMediaType, answer{Error: "want Content-Type: " + ContentType})
		return
	}
	owner, body, err := h.authenticate(w, r)
	if err != nil {
		h.log.Debug("command refused", "client", h.client(r), "error", graspsync.Printable(err.Error()))
		h.write(w, statusOf(err), answer{Error: graspsync.Printable(err.Error())})
		return
	}
	// A command is completed if the client disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), commandTimeout)
	defer cancel()
	result, err := h.call(ctx, owner, body)
	if err != nil {
		h.write(w, http.StatusOK, answer{Error: graspsync.Printable(err.Error())})
		return
	}
	if result == nil {
		result = true
	}
	h.write(w, http.StatusOK, answer{Result: result})
}

func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) (owner graspsync.PubKey, body []byte, err error) {
	now := time.Now()
	c, err := h.auth.parseAuthorization(r.Header, r.Method, now)
	if err != nil {
		return owner, nil, err
	}
	// Some connections have no deadlines. Their body is limited in bytes only.
	_ = http.NewResponseController(w).SetReadDeadline(now.Add(bodyTimeout))
	if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		return owner, nil, fmt.Errorf("reading the request: %w", err)
	}
	return c.event.PubKey, body, h.auth.verify(r.Context(), c, body, h.client(r))
}

func statusOf(err error) int {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errOwner):
		return http.StatusForbidden
	case errors.Is(err, errEarly):
		return http.StatusTooEarly
	case errors.Is(err, errBusy), errors.Is(err, errSaving):
		return http.StatusServiceUnavailable
	}
	return http.StatusUnauthorized
}

func (h *Handler) write(w http.ResponseWriter, status int, a answer) {
	data, err := json.Marshal(a)
	if err != nil {
		h.log.Error("writing a response failed", "error", err)
		status, data = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	// The command may have taken longer than the server's write timeout.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // fails only if the client is gone
}
