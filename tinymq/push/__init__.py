"""
Sending the messages of channels to push endpoints.

::

    pushes.Pushes        all endpoints on this broker: follows the MetaServer, tells figures
        pusher           one endpoint: takes messages as any client does, and settles them
        sending          one POST, with what may go wrong
        request          the headers of a POST, and its signature
        waiting          how long an endpoint wants to be left alone (Retry-After)
        turnstile        how many requests this broker has open, shared out fairly
        counting         what was done, how fast, and how long it took
        guard            names are resolved here, and only addresses that may be are connected to
        inside           a connection within this process
"""
