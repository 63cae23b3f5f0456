-- What takes a queue's name is no longer made anew with every queue.
drop function if exists _dispatch(), _dispatch_jobs(), _dispatch_on(text, text), _dispatch_tick();
