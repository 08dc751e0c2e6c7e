def _kforge_guard(kind, verified):
    """Let `kind.forward` run in calls like those it was verified in; any other call raises one sentence.

    Native code reads memory by address: it sees neither another dtype nor another layout, and neither a tracer nor
    autograd sees what it does. The program itself may check none of that.
    """
    import functools
    import inspect
    import weakref

    import torch
    from torch.autograd import forward_ad
    from torch.utils import _pytree as pytree

    program = kind.forward
    name, device, exact = (verified[key] for key in ("name", "device", "exact_shapes"))
    # The calls it was verified for, and of each the modules: arguments, lengths that may be others, and state.
    calls = [
        (arguments, ranges, [(label, getattr(torch, dtype), *layout) for label, dtype, *layout in state])
        for arguments, ranges, state in verified["calls"]
    ]
    extent = (
        "nothing else"
        if len(calls) == 1
        else f"nothing but that and {len(calls) - 1} other size{'s' * (len(calls) > 2)}"
    )
    last = [0]
    cure = "forge it again for that, or use the original module"
    no_gradient = (
        f"{name} is a forged program, verified for inference only: it has no gradient. Train with the original module, "
        "or call it under torch.no_grad()"
    )
    no_second_derivative = (
        f"{name} is a forged program, verified for first derivatives only: leave out create_graph, or use the original "
        "module"
    )
    not_traced = (
        f"{name} is a forged program whose native code no tracer can see into: trace or export the model with the "
        "original module in its place"
    )
    not_in_a_graph = (
        f"{name} is a forged program and cannot be part of a graph: compile without fullgraph=True, and it runs "
        "between two graphs"
    )
    plain = (torch.Tensor, torch.nn.Parameter)
    known_places = weakref.WeakKeyDictionary()

    def layout(dtype, shape, where):
        return f"{str(dtype).removeprefix('torch.')} {shape if isinstance(shape, str) else tuple(shape)} on {where}"

    def describe(shape, ranges):
        """A shape with the ranges of those lengths that may be others."""
        spans = [(length, *ranges[-1 - length]) if length < 0 else (length, 0, 0, 0) for length in shape]
        parts = [f"{low} to {high}" if length < 0 else str(length) for length, low, high, _ in spans]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def fill_in(shape, actual, ranges, lengths):
        """The verified shape for an actual one: lengths that may be others are its own, where they are in range."""
        if len(shape) != len(actual):
            return None
        wanted = []
        for length, own in zip(shape, actual):  # noqa: B905
            if length < 0:
                low, high, step = ranges[-1 - length]
                if lengths.setdefault(length, own) != own or own not in range(low, high + 1, step):
                    return None
            wanted.append(own if length < 0 else length)
        return tuple(wanted)

    def refuse(what, wanted, actual):
        raise ValueError(f"{what} must be {wanted}, and is {actual}: {name} was verified for {extent}; {cure}")

    def fit(value, spec, what, ranges, lengths):
        """The argument in the layout that was verified; ValueError or TypeError if it is another one.

        `lengths` are those that this call has given to the ranges so far.
        """
        form, content = spec[0], spec[1]
        if form == "tensor":
            return fit_tensor(value, spec, what, ranges, lengths)
        if form == "dtype":
            if value is not getattr(torch, content):
                refuse(what, content, repr(value)[:80])
            return value
        if form == "any":
            if content != "object" and type(value).__name__ != content:
                refuse(what, f"a {content}", repr(value)[:80])
            return value
        if form == "value":
            if type(value) is not type(content) or not (value == content or (value != value and content != content)):
                refuse(what, repr(content), repr(value)[:80])
            return value
        if form == "dict":
            if not isinstance(value, dict) or list(value) != [key for key, _ in content]:
                refuse(what, f"a dict of {[key for key, _ in content]}", repr(value)[:80])
            return {key: fit(value[key], item, f"{what}[{key!r}]", ranges, lengths) for key, item in content}
        wanted = list if form == "list" else tuple
        if not isinstance(value, wanted) or len(value) != len(content):
            refuse(what, f"a {form} of {len(content)}", repr(value)[:80])
        both = enumerate(zip(value, content))  # noqa: B905
        return wanted(fit(one, two, f"{what}[{i}]", ranges, lengths) for i, (one, two) in both)

    def fit_tensor(tensor, spec, what, ranges, lengths):
        _, dtype, shape, stride = spec
        dtype = getattr(torch, dtype)
        if type(tensor) not in plain:
            odd = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
            raise TypeError(f"{what} is a {odd} and no plain tensor: {not_traced}")
        filled = fill_in(shape, tensor.shape, ranges, lengths)
        same = tensor.shape == filled if exact else tensor.dim() == len(shape)
        if tensor.dtype is not dtype or not same or tensor.device.type != device:
            shown = describe(shape, ranges)
            refuse(what, layout(dtype, shown, device), layout(tensor.dtype, tensor.shape, tensor.device))
        if not exact:
            return tensor.contiguous()
        if stride is None:
            fresh = not tensor.is_contiguous() or tensor.data_ptr() % 16
            return tensor.clone(memory_format=torch.contiguous_format) if fresh else tensor
        if tensor.stride() != stride or tensor.data_ptr() % 16:
            # Another layout of the same values is copied; where a vector may begin is part of it.
            return torch.empty_strided(shape, stride, dtype=dtype, device=tensor.device).copy_(tensor)
        return tensor

    def places(module, number):
        """Where each tensor of the module is kept, found once; a copy of the module finds its own."""
        known = known_places.get(module)
        if known is None or known[0] is not module._parameters:
            known = known_places[module] = (module._parameters, {})
        # Not kept in the module: torch.export takes the module's attributes for its own.
        if number not in known[1]:
            entries = []
            for label, *spec in calls[number][2]:
                *path, key = label.split(".")
                part = functools.reduce(lambda part, step: part and part._modules.get(step), path, module)
                held = [] if part is None else [some for some in (part._parameters, part._buffers) if key in some]
                if not held:
                    raise ValueError(f"the module has lost its {label}, which {name} was verified with: {cure}")
                entries.append((held[0], key, label, spec))
            known[1][number] = entries
        return known[1][number]

    def check_state(module, where, number):
        for held, key, label, (dtype, shape, stride) in places(module, number):
            tensor = held.get(key)
            if type(tensor) not in plain:
                odd = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
                refuse(f"the module's {label}", "a plain tensor", f"a {odd}")
            same = tensor.shape == shape and tensor.stride() == stride if exact else True
            if (
                tensor.dtype is dtype
                and same
                and (where is None or tensor.device == where)
                and tensor.device.type == device
            ):
                continue
            wanted, actual = layout(dtype, shape, where or device), layout(tensor.dtype, tensor.shape, tensor.device)
            if wanted == actual:
                wanted, actual = f"{wanted} with strides {stride}", f"with strides {tensor.stride()}"
            refuse(f"the module's {label}", wanted, actual)

    def check_surroundings(module, where):
        if verified["training"] is not None and module.training is not verified["training"]:
            modes = {True: "training mode", False: "evaluation mode"}
            refuse("the module", f"in {modes[verified['training']]}", f"in {modes[module.training]}")
        if torch.get_default_dtype() is not torch.float32:
            refuse("torch's default dtype", "float32", str(torch.get_default_dtype()).removeprefix("torch."))
        if where is not None and where.type == "cuda" and where.index != torch.cuda.current_device():
            current = f"cuda:{torch.cuda.current_device()}"
            raise ValueError(f"the tensors are on {where} and the current device is {current}: use torch.cuda.device")

    def fit_call(module, arguments, named, number):
        """The arguments of a call like one of those that were verified, and their device; an error if it is not."""
        specs, ranges, _ = calls[number]
        if specs is not None:
            if named:
                given = inspect.signature(program).bind(module, *arguments, **named)
                arguments, named = given.args[1:], given.kwargs
            if named or len(arguments) != len(specs):
                raise TypeError(
                    f"{name} was verified with {len(specs)} arguments, and is given {len(arguments)}: {cure}"
                )
            lengths, pairs = {}, enumerate(zip(arguments, specs), 1)  # noqa: B905
            arguments = [fit(*both, f"argument {i}", ranges, lengths) for i, both in pairs]
        devices = {leaf.device for leaf in pytree.tree_leaves((arguments, named)) if isinstance(leaf, torch.Tensor)}
        if len(devices) > 1:
            raise ValueError(f"the arguments are on several devices ({', '.join(sorted(map(str, devices)))})")
        where = next(iter(devices), None)
        check_state(module, where, number)
        return arguments, named, where

    def find_call(module, arguments, named):
        """The same for whichever of the verified calls it is like; the one before is the likeliest."""
        if len(calls) == 1:
            return fit_call(module, arguments, named, 0)
        refusals = {}
        for number in (last[0], *(other for other in range(len(calls)) if other != last[0])):
            try:
                fitted = fit_call(module, arguments, named, number)
            except (TypeError, ValueError) as error:
                refusals[number] = error
            else:
                last[0] = number
                return fitted
        raise refusals[0]

    def run_checked(module, arguments, named):
        """The program's result, in a call that it was verified for."""
        arguments, named, where = find_call(module, arguments, named)
        check_surroundings(module, where)
        kind_of_device = where.type if where is not None else device
        if torch.is_autocast_enabled(kind_of_device):
            with torch.autocast(kind_of_device, enabled=False):
                return program(module, *arguments, **named)
        return program(module, *arguments, **named)

    def refuse_second_derivative(gradient):
        # Autograd takes note of a backward pass only where somebody wants to derive it once more.
        if torch.is_grad_enabled():
            raise RuntimeError(no_second_derivative)

    class Inference(torch.autograd.Function):
        """A call that autograd takes note of, so that asking for its gradient is an error and not a wrong one."""

        @staticmethod
        def forward(context, call, *followed):
            return tuple(call())

        @staticmethod
        def backward(context, *gradients):
            raise RuntimeError(no_gradient)

        @staticmethod
        def jvp(context, *tangents):
            raise RuntimeError(no_gradient)

    def enter(module, arguments, named):
        if torch.jit.is_tracing() or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:
            raise RuntimeError(not_traced)
        dual = forward_ad._current_level >= 0
        if not (dual or torch.is_grad_enabled()):
            return run_checked(module, arguments, named)
        leaves = [leaf for leaf in pytree.tree_leaves((arguments, named)) if isinstance(leaf, torch.Tensor)]
        followed = [tensor for tensor in [*leaves, *module.parameters()] if dual or tensor.requires_grad]
        if not followed:
            return run_checked(module, arguments, named)
        if verified["backward"] and not dual:
            output = run_checked(module, arguments, named)
            for leaf in pytree.tree_leaves(output):
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                    leaf.register_hook(refuse_second_derivative)
            return output
        shapes = []

        def call():
            outputs, shape = pytree.tree_flatten(run_checked(module, arguments, named))
            shapes.append(shape)
            return outputs

        outputs = Inference.apply(call, *followed)
        return pytree.tree_unflatten(list(outputs), shapes[0])

    @functools.wraps(program)
    def forward(self, *arguments, **named):
        if torch.compiler.is_compiling():
            torch._dynamo.graph_break(msg=not_in_a_graph)
            return torch.compiler.disable(enter)(self, arguments, named)
        return enter(self, arguments, named)

    kind.forward = forward
