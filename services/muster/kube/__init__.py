"""The Kubernetes edge: the only package of Muster that talks to the Kubernetes API.

    config.connect ─► Kube (one client, one pool)
                        │  request() / stream()            transport.Transport is its shape
          ┌─────────────┼──────────────┬─────────────┐
      reflector       writer        recording      lease
      list + watch    typed writes  Events         leadership and its epoch
          │
      view (pure: what is known, what a list or an event changes)
          │
      decoding (narrow structs, one decoder per kind)

kubernetes_asyncio gives configuration, authentication and TLS. Its typed models are never used: one pod costs them a
millisecond, the narrow structs here cost ten microseconds.
"""
