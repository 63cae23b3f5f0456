update penstock_leases set until = {clock} + {micros} where {lease in leases} and +queue_id = {queue} and +until > {clock}
