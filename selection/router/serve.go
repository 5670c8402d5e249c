package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"
)

// Serve is Run with a server for clients, such as one whose handler is an httputil.ReverseProxy
// with this router as its Transport. The server listens when the router is ready, so that
// clients use another relay until then. When ctx ends, it stops to listen and waits up to
// DrainTimeout for its requests; then the router stops as in Run. The error is nil after an
// orderly stop. A server whose TLSConfig has a certificate serves HTTPS.
func (r *Router) Serve(ctx context.Context, server *http.Server) error {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, failed := errgroup.WithContext(running)
	group.Go(func() error { return r.Run(failed) })
	group.Go(func() error {
		defer end()
		stopping, stop := context.WithCancel(failed)
		defer context.AfterFunc(ctx, stop)()
		defer stop()
		if r.WaitReady(stopping) != nil {
			return nil
		}
		served := make(chan error, 1)
		go func() { served <- listen(server) }()
		select {
		case err := <-served:
			return fmt.Errorf("router: serve clients on %s: %w", server.Addr, err)
		case <-stopping.Done():
		}
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.DrainTimeout)
		defer cancel()
		err := server.Shutdown(drain)
		if err != nil {
			err = errors.Join(fmt.Errorf("router: clients still had requests in flight at the end of the drain timeout: %w", err), server.Close())
		}
		<-served
		return err
	})
	return group.Wait()
}

// listen serves in clear text only if the server has no certificate.
func listen(server *http.Server) error {
	if t := server.TLSConfig; t != nil && (len(t.Certificates) > 0 || t.GetCertificate != nil || t.GetConfigForClient != nil) {
		return server.ListenAndServeTLS("", "")
	}
	return server.ListenAndServe()
}
