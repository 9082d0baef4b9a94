@wrap
async def f(a: int = (1), *b) -> "x":
    while True:
        if a: break; b = 1
        elif (c := a[1:2]): continue
        else: return {1: lambda x: x}
    else:
        raise E("""
x""") from None
    async for i in g(): pass
    try: a
    except (A, B) as e:
        match e:
            case {"k": [1, *_]}: return
            case _ if a:
                b
    else: c
    finally:
        with a as b, \
             c as d:
            x = f'{a["k"]}' # if
	class C: y = 1; z = 2
