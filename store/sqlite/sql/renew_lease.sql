update penstock_subscriptions set lease_until = {clock} + {length} where id = {sub} and epoch = {epoch} and holder = {holder}
