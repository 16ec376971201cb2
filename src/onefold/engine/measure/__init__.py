"""Everything that is measured of finished runs, from their folders: streamed, stored, and gone on with."""
