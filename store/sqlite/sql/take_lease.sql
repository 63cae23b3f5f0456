update penstock_subscriptions
   set epoch = epoch + 1, holder = {holder}, holder_since = {clock}, lease_until = {clock} + {length}, settles = 0
 where id = {sub}
