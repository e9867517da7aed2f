// Command localvolumes keeps one node's local PersistentVolumes: it sees to it that some are always free, and wipes and
// frees those whose claim is gone and whose reclaim policy is Delete. Those of policy Retain are left as they are and
// new ones made in their place.
//
// It runs on the node it serves, like the storage project's own provisioner of local volumes: a node that is down or
// cut off wipes nothing.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	nodeLabel = "shardwright.test/node"
	// With a provisioner of its own in this annotation the controller manager leaves the deletion of a released
	// volume to that provisioner, instead of failing it for want of a plugin.
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	provisioner   = "shardwright.test/local-volumes"
	collection    = "/api/v1/persistentvolumes"
)

// class is a storage class served here. A fixed class has the folders that are there, others get new ones as needed.
type class struct {
	name     string
	policy   string
	capacity string
	free     int
	fixed    bool
}

var classes = []class{
	{name: "local", policy: "Delete", capacity: "10Gi", free: 8},
	{name: "local-retain", policy: "Retain", capacity: "10Gi", free: 4},
	{name: "local-small", policy: "Delete", capacity: "512Mi", fixed: true},
}

// most bounds the volumes of one class on one node, should something claim them without end.
const most = 256

type metadata struct {
	Name            string            `json:"name,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
}

type volumeSpec struct {
	Capacity         map[string]string `json:"capacity"`
	AccessModes      []string          `json:"accessModes"`
	Policy           string            `json:"persistentVolumeReclaimPolicy"`
	StorageClassName string            `json:"storageClassName"`
	Local            struct {
		Path string `json:"path"`
	} `json:"local"`
	NodeAffinity json.RawMessage `json:"nodeAffinity"`
	ClaimRef     json.RawMessage `json:"claimRef,omitempty"`
}

type volume struct {
	APIVersion string     `json:"apiVersion,omitempty"`
	Kind       string     `json:"kind,omitempty"`
	Metadata   metadata   `json:"metadata"`
	Spec       volumeSpec `json:"spec"`
	Status     struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status"`
}

type volumeList struct {
	Metadata metadata `json:"metadata"`
	Items    []volume `json:"items"`
}

// keeper is the program's state.
type keeper struct {
	server, token, node, root string
	client                    *http.Client
}

// call sends one request and decodes its answer into out, if out is wanted.
func (k *keeper) call(ctx context.Context, method, path, contentType string, body, out any) error {
	res, err := k.request(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	return json.NewDecoder(res.Body).Decode(out)
}

func (k *keeper) request(ctx context.Context, method, path, contentType string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, k.server+path, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+k.token)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 512))
		res.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, b)
	}
	return res, nil
}

func (k *keeper) query(more url.Values) string {
	more.Set("labelSelector", nodeLabel+"="+k.node)
	return collection + "?" + more.Encode()
}

// changed returns when one of the node's volumes changes after a version, or after a while.
func (k *keeper) changed(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	q := k.query(url.Values{"watch": {"1"}, "resourceVersion": {version}, "timeoutSeconds": {"50"}})
	res, err := k.request(ctx, http.MethodGet, q, "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var event json.RawMessage
	if err := json.NewDecoder(res.Body).Decode(&event); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// reconcile does what there is to do now. again says that something must be looked at once more soon.
func (k *keeper) reconcile(ctx context.Context, list volumeList) (again bool, err error) {
	for _, c := range classes {
		known := map[string]bool{}
		free, total, highest := 0, 0, 0
		for _, v := range list.Items {
			if v.Spec.StorageClassName != c.name {
				continue
			}
			total++
			known[v.Spec.Local.Path] = true
			highest = max(highest, number(v.Spec.Local.Path))
			switch {
			case v.Status.Phase == "Released" && v.Spec.Policy == "Delete":
				if k.inUse(v.Spec.Local.Path) {
					again = true
					continue
				}
				if err := k.recycle(ctx, v); err != nil {
					return again, err
				}
				free++
			case len(v.Spec.ClaimRef) == 0 && v.Status.Phase != "Failed":
				free++
			}
		}
		folders, err := filepath.Glob(filepath.Join(k.root, c.name, "*"))
		if err != nil {
			return again, err
		}
		if c.fixed {
			for _, f := range folders {
				if !known[f] {
					if err := k.create(ctx, c, f); err != nil {
						return again, err
					}
				}
			}
			continue
		}
		// A folder without a volume may hold what someone wants to keep: its number is not used again.
		for _, f := range folders {
			highest = max(highest, number(f))
		}
		for ; free < c.free && total < most; free, total = free+1, total+1 {
			highest++
			if err := k.create(ctx, c, filepath.Join(k.root, c.name, strconv.Itoa(highest))); err != nil {
				return again, err
			}
		}
	}
	return again, nil
}

func number(path string) int {
	n, _ := strconv.Atoi(filepath.Base(path))
	return n
}

// create makes a volume's folder and the volume.
func (k *keeper) create(ctx context.Context, c class, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	v := volume{APIVersion: "v1", Kind: "PersistentVolume"}
	v.Metadata = metadata{
		Name:        fmt.Sprintf("%s-%s-%03d", k.node, c.name, number(path)),
		Labels:      map[string]string{nodeLabel: k.node},
		Annotations: map[string]string{provisionedBy: provisioner},
	}
	v.Spec = volumeSpec{
		Capacity:         map[string]string{"storage": c.capacity},
		AccessModes:      []string{"ReadWriteOnce"},
		Policy:           c.policy,
		StorageClassName: c.name,
	}
	v.Spec.Local.Path = path
	affinity, err := json.Marshal(map[string]any{"required": map[string]any{"nodeSelectorTerms": []any{
		map[string]any{"matchExpressions": []any{
			map[string]any{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{k.node}},
		}},
	}}})
	if err != nil {
		return err
	}
	v.Spec.NodeAffinity = affinity
	return k.call(ctx, http.MethodPost, collection, "application/json", v, nil)
}

// recycle empties a volume and frees it.
func (k *keeper) recycle(ctx context.Context, v volume) error {
	started := time.Now()
	if err := k.wipe(v.Spec.Local.Path); err != nil {
		return err
	}
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": v.Metadata.ResourceVersion},
		"spec":     map[string]any{"claimRef": nil},
	}
	path := collection + "/" + v.Metadata.Name
	if err := k.call(ctx, http.MethodPatch, path, "application/merge-patch+json", patch, nil); err != nil {
		return err
	}
	log.Printf("%s wiped and freed in %v", v.Metadata.Name, time.Since(started).Round(time.Millisecond))
	return nil
}

// wipe removes a folder's content and gives it a new volume's owner and mode. The folder itself may be a mount point.
func (k *keeper) wipe(path string) error {
	if !strings.HasPrefix(filepath.Clean(path), filepath.Clean(k.root)+"/") {
		return fmt.Errorf("%s is no folder of mine", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Chown(path, 0, 0); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// inUse says whether a pod's mount of the volume is still there. The claim of a pod that was deleted by force may be
// gone before the pod's processes are.
func (k *keeper) inUse(path string) bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	want, wantSource := "/volumes"+strings.TrimPrefix(path, k.root), ""
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) > 4 && f[4] == path {
			wantSource = f[2] // the volume is a file system of its own
		}
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.Contains(f[4], "/kubelet/pods/") {
			continue
		}
		if wantSource != "" && f[2] == wantSource || wantSource == "" && strings.HasSuffix(f[3], want) {
			return true
		}
	}
	return false
}

// run lists, does what there is to do, and waits for a change.
func (k *keeper) run(ctx context.Context) error {
	for {
		var list volumeList
		if err := k.call(ctx, http.MethodGet, k.query(url.Values{}), "", nil, &list); err != nil {
			return err
		}
		again, err := k.reconcile(ctx, list)
		if err != nil {
			return err
		}
		if again {
			time.Sleep(time.Second)
			continue
		}
		if err := k.changed(ctx, list.Metadata.ResourceVersion); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func main() {
	log.SetFlags(log.LstdFlags | log.LUTC)
	var k keeper
	flag.StringVar(&k.node, "node", "", "this node's name")
	flag.StringVar(&k.root, "root", "", "the folder that holds a folder per class")
	flag.StringVar(&k.server, "server", "", "the API server's URL")
	ca := flag.String("ca", "", "the file with the API server's authority")
	tokenFile := flag.String("token", "", "the file with the token to use")
	flag.Parse()

	pem, err := os.ReadFile(*ca)
	if err != nil {
		log.Fatal(err)
	}
	token, err := os.ReadFile(*tokenFile)
	if err != nil {
		log.Fatal(err)
	}
	k.token = strings.TrimSpace(string(token))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatalf("%s holds no certificate", *ca)
	}
	k.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: pool},
		ResponseHeaderTimeout: 30 * time.Second,
	}}
	for {
		if err := k.run(context.Background()); err != nil {
			log.Print(err)
		}
		time.Sleep(time.Second)
	}
}
