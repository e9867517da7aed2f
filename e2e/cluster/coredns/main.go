// CoreDNS with only the plugins that a cluster's name service needs. The stock program has some fifty, and with them
// the client libraries of three clouds, which take minutes to build.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

func main() {
	// The order is that of a query's way through the plugins, as in the stock plugin.cfg.
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "cache", "loop", "kubernetes"}
	coremain.Run()
}
