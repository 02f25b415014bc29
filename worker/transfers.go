package worker

import (
	"fmt"
	"net"
	"strings"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/dump"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer"
)

// transfers is how entries leave this shard for another's worker, and come from one.
type transfers struct {
	server   *transfer.Server
	dialer   activities.Dialer
	listener net.Listener
	// address is where other shards' workers reach the listener, or another worker's of this shard: several are separated by commas.
	address string
}

func listenForTransfers(config *Config, store activities.Store) (*transfers, error) {
	files := transfer.Config{CertificateFile: config.TransferCertFile, KeyFile: config.TransferKeyFile, CAFile: config.TransferCAFile}
	origin := activities.NewOrigin(store)
	server, err := transfer.NewServer(files, origin, store, dump.NewHandler(config.Shard, origin, store))
	if err != nil {
		return nil, activities.Refuse(activities.InvalidInput, "use the --transfer-… files: %v", err)
	}
	dialer, err := transfer.NewDialer(files)
	if err != nil {
		return nil, activities.Refuse(activities.InvalidInput, "use the --transfer-… files: %v", err)
	}
	listener, err := net.Listen("tcp", config.TransferListen)
	if err != nil {
		return nil, fmt.Errorf("listen for transfers: %w", err)
	}
	address := strings.Join(config.TransferAdvertise, ",")
	if address == "" {
		address = listener.Addr().String()
	}
	return &transfers{server: server, dialer: dialer, listener: listener, address: address}, nil
}

// validateTransfer refuses addresses that tell other workers nothing, and plaintext off loopback before anything is served.
func (c *Config) validateTransfer() error {
	if c.TransferListen == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.TransferListen)
	if err != nil {
		return fmt.Errorf("--transfer-listen %q is not host:port", c.TransferListen)
	}
	address := net.ParseIP(host)
	if c.TransferCertFile == "" && host != "localhost" && !address.IsLoopback() {
		return fmt.Errorf("--transfer-ca-file, --transfer-cert-file and --transfer-key-file are missing: off loopback, %s is served with mutual TLS only",
			c.TransferListen)
	}
	if len(c.TransferAdvertise) == 0 && (host == "" || address.IsUnspecified()) {
		return fmt.Errorf("--transfer-advertise is missing: say where other workers reach %s", c.TransferListen)
	}
	for _, advertised := range c.TransferAdvertise {
		if _, _, err := net.SplitHostPort(advertised); err != nil {
			return fmt.Errorf("--transfer-advertise %q is not host:port", advertised)
		}
	}
	return nil
}
